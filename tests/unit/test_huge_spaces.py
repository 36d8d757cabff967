"""Spaces of 10^12 points and more are searched without being listed."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from greenfast.search.devices.facts import device
from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import expression
from greenfast.search.kernels.spec import Constraint, Parameter
from greenfast.search.space.space import Space
from greenfast.search.strategies import STRATEGIES
from greenfast.search.strategies.base import Infeasible, Objective, Past

NAMES = tuple(f"p{number}" for number in range(13))


@pytest.fixture(scope="module")
def huge(album):
    """10^13 combinations, of which constraints leave a few in a thousand; one is conditional."""
    template = album.kernel("axpy").template("right")
    parameters = tuple(
        Parameter(name, "int", tuple(range(1, 11)), 1, "", False, None) for name in NAMES
    )
    conditional = replace(parameters[-1], when=expression("p11 > 5", "p12"))
    rules = ("p0 * p1 <= 20", "p2 + p3 == p4", "p5 % p6 == 0", "p7 != p8")
    spec = replace(
        template,
        parameters=(*parameters[:-1], conditional),
        locals=(),
        constraints=tuple(Constraint(expression(rule, rule), "too large") for rule in rules),
        launches=(),
        presets=(),
    )
    return _Unlaunched(spec, (), device("h200"))


class _Unlaunched(Space):
    """Its template launches nothing, so that only its constraints decide."""

    def _fits(self, values):
        return True

    def why_not(self, parameters):
        values = dict(parameters)
        broken = [rule for rule in self.template.constraints if not rule.expression(values)]
        return broken[0].because if broken else None


def _told(candidate):
    values = candidate.values()
    return Objective(values["p0"] * 0.1) if values["p4"] < 9 else Infeasible()


@pytest.mark.slow
def test_the_space_is_too_large_to_list(huge):
    assert not huge.is_listed
    with pytest.raises(SpecError) as error:
        _ = huge.points
    assert error.value.code == "space_too_large"
    sampled = huge.sample(5, seed=1)  # for `greenfast lint`
    assert len(sampled) == 5 and all(map(huge.is_valid, sampled))


@pytest.mark.parametrize("name", ["evolution", "nsga2", "random", "tpe"])
def test_points_are_valid_new_and_the_same_for_a_seed(huge, name):
    runs = []
    for _ in range(2):
        strategy = STRATEGIES[name]("axpy", {"right": huge}, [], 5)
        proposals = []
        for _ in range(24):
            proposals.append(strategy.ask())
            strategy.tell(proposals[-1], _told(proposals[-1].candidate))
        runs.append([proposal.candidate.parameters for proposal in proposals])
    assert runs[0] == runs[1] and len(set(runs[0])) == 24
    assert all(huge.why_not(point) is None for point in runs[0])
    assert all(dict(point)["p12"] == 1 or dict(point)["p11"] > 5 for point in runs[0])


def test_a_point_near_another_keeps_what_fits(huge):
    rng = random.Random(1)
    near = huge.drawn(rng)
    assert huge.drawn(rng, near) == near
    broken = (*near[:4], ("p4", 1), *near[5:])
    repaired = huge.drawn(rng, broken)
    assert huge.why_not(repaired) is None
    assert sum(item != kept for item, kept in zip(near, repaired, strict=True)) <= 3


def test_a_restored_strategy_repeats_nothing(huge):
    first = STRATEGIES["random"]("axpy", {"right": huge}, [], 5)
    tried = [first.ask().candidate for _ in range(10)]
    restored = STRATEGIES["random"]("axpy", {"right": huge}, [], 5)
    restored.restore([Past(candidate, {}, Infeasible()) for candidate in tried])
    assert restored.ask().candidate not in tried


def test_exhaustive_is_refused_with_the_reason(huge):
    with pytest.raises(SpecError) as error:
        STRATEGIES["exhaustive"]("axpy", {"right": huge}, [], 5).ask()
    assert error.value.code == "space_too_large"


def test_conditions_on_later_parameters_leave_only_complete_points(huge):
    """p0 hangs on p1, which hangs on p2: each off one has its default, however points are found."""
    p0, p1, p2 = (replace(each, values=(1, 2, 3)) for each in huge.template.parameters[:3])
    chain = (
        replace(p0, when=expression("p1 > 1", "p0")),
        replace(p1, when=expression("p2 > 1", "p1")),
        p2,
    )
    space = _Unlaunched(
        replace(huge.template, parameters=chain, constraints=()), (), device("h200")
    )
    points = {
        (("p0", a), ("p1", b), ("p2", c))
        for a, b, c in itertools.product((1, 2, 3), repeat=3)
        if (c > 1 or b == 1) and (b > 1 or a == 1)
    }
    assert set(space.points) == set(space.each_point()) == points
    assert len(space.points) == len(list(space.each_point())) == len(points)
    rng = random.Random(1)
    assert {space.drawn(rng) for _ in range(200)} == points
    assert all(space.is_valid(point) for point in points)
