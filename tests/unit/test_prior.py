"""Outcomes of other scopes as a prior of `evolution`."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from bench.speed.search_quality_spaces import MeasuredSpace
from greenfast.search.kernels.spec import Parameter
from greenfast.search.strategies import STRATEGIES
from greenfast.search.strategies.base import Infeasible, Objective, Options, Past
from greenfast.search.strategies.prior import History
from greenfast.search.strategies.ranker import Basis, Outcomes, Ranker

SIZES = (1, 2, 4, 8, 16, 32)
PARAMETERS = (
    *(Parameter(name, "int", SIZES, 1, "", False, None) for name in ("a", "b", "c", "d")),
    Parameter("on", "bool", (False, True), False, "", False, None),
)
BEST = {"a": 8, "b": 2, "c": 32, "d": 1, "on": True}


def time_us(point, best=BEST):
    """A valley, with its bottom at `best`."""
    off = (abs(math.log2(value / best[name])) for name, value in point if name != "on")
    return 10.0 * (1 + sum(distance**1.5 for distance in off)) + 3 * (
        dict(point)["on"] != best["on"]
    )


@pytest.fixture(scope="module")
def space():
    names = [each.name for each in PARAMETERS]
    points = tuple(
        tuple(zip(names, values, strict=True))
        for values in itertools.product(*(each.values for each in PARAMETERS))
    )
    return MeasuredSpace("valley", PARAMETERS, points, np.ones(len(points))).searched()


def history(space, best=BEST, template="recorded"):
    points = list(space.points)[::37]
    return History.of_times(template, [(point, time_us(point, best)) for point in points])


def strategy(space, *histories, name="evolution", seed=5):
    return STRATEGIES[name]("gemm", {"recorded": space}, [], seed, Options(histories=histories))


def driven(made, count, past=()):
    """The proposals, as stored; a point with `a` of 16 is wrong."""
    stored = list(past)
    for _ in range(count):
        proposal = made.ask()
        point = proposal.candidate.parameters
        told = Infeasible() if dict(point)["a"] == 16 else Objective(math.log(time_us(point)))
        made.tell(proposal, told)
        stored.append(Past(proposal.candidate, proposal.sampler, told))
    return stored


def proposed(stored):
    return [(past.candidate, past.sampler) for past in stored]


def best_after(stored):
    return min(past.told.log_ratio for past in stored if isinstance(past.told, Objective))


def test_outcomes_come_back_from_their_text(space):
    written = history(space)
    read = History.read("recorded", written.text())
    assert read == written
    assert [type(value) for _, value in read.points[0]] == [int] * 4 + [bool]
    assert len(written.text()) < 20 * len(written.points) + 200


def test_searches_that_know_a_neighbour_are_faster(space):
    near = history(space, {**BEST, "c": 16})
    cold, warm = (
        sum(best_after(driven(strategy(space, *known, seed=seed), 14)) for seed in range(5))
        for known in ((), (near,))
    )
    assert warm < cold - 0.5


def test_without_outcomes_of_its_template_a_search_is_as_it_was(space):
    cold = proposed(driven(strategy(space), 20))
    assert proposed(driven(strategy(space, history(space, template="other")), 20)) == cold
    few = history(space)
    few = History("recorded", few.points[:3], few.logs[:3])
    assert proposed(driven(strategy(space, few), 20)) == cold


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - {"evolution", "gp"}))
def test_other_strategies_ignore_outcomes_of_other_scopes(space, name):
    known = strategy(space, history(space), name=name)
    assert proposed(driven(known, 6)) == proposed(driven(strategy(space, name=name), 6))
    assert not known.uses_history


def test_a_resumed_search_with_a_prior_goes_on_alike(space):
    whole = driven(strategy(space, history(space)), 24)
    resumed = strategy(space, history(space))
    resumed.restore(whole[:15])
    assert proposed(driven(resumed, 9, whole[:15])) == proposed(whole)


def test_points_of_an_earlier_template_are_understood_or_left_out(space):
    island = strategy(space)._islands["recorded"]
    point = dict(list(space.points)[100])
    assert island._within(point) == island._within({**point, "gone": 3})
    del point["b"]
    assert island._within(point)[1] == 0  # its default
    assert island._within({**point, "c": 3}) is None
    assert island._within({**point, "c": True}) is None


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_neighbour_is_believed_until_outcomes_contradict(sign):
    dice, ranker = np.random.default_rng(1), Ranker(np.arange(3))
    places, points = dice.random((40, 3)), dice.random((500, 3))
    slope = np.array([1.0, 2.0, 0.5])
    errors = []
    for count in (2, 40):
        known = Outcomes(places[:count], places[:count] @ slope)
        basis = Basis(*(sign * (each @ slope)[None] for each in (known.points, places[:0], points)))
        means = ranker.expected(known, places[:0], points, 0, basis).means
        errors.append(1 - np.corrcoef(means, points @ slope)[0, 1])
    assert errors[1] < 0.02
    assert errors[0] < 0.02 if sign > 0 else errors[0] > 0.5


def test_a_neighbour_on_other_shapes_costs_little_where_it_misleads(space):
    opposite = {name: SIZES[-1 - SIZES.index(value)] for name, value in list(BEST.items())[:4]}
    misled = driven(strategy(space, history(space, {**opposite, "on": False})), 40)
    assert best_after(misled) <= best_after(driven(strategy(space), 40)) + 0.05


def test_equal_times_and_a_neighbour_leave_finite_expectations():
    dice, ranker = np.random.default_rng(2), Ranker(np.arange(3))
    places, points = dice.random((3, 3)), dice.random((50, 3))
    none = places[:0]
    basis = Basis(np.zeros((1, 3)), np.zeros((1, 0)), 5 * dice.normal(size=(1, 50)))
    expected = ranker.expected(Outcomes(places, np.zeros(3)), none, points, 5, basis)
    assert np.isfinite(expected.means).all()
    assert np.isfinite(expected.improvement(np.arange(50))).all()


def test_a_neighbour_that_predicts_nothing_counts_for_next_to_nothing():
    changes = []
    for seed in range(12):
        dice, ranker = np.random.default_rng(seed), Ranker(np.arange(3))
        places, points = dice.random((60, 3)), dice.random((300, 3))
        known, none = Outcomes(places, np.sin(3 * places).sum(1)), places[:0]
        noise = Basis(dice.normal(size=(1, 60)), np.zeros((1, 0)), dice.normal(size=(1, 300)))
        alone = ranker.expected(known, none, points, 0).means
        changes.append(np.abs(ranker.expected(known, none, points, 0, noise).means - alone).max())
    assert sum(change == 0 for change in changes) >= 4
    assert max(changes) < 0.15  # of the deviation of the times
