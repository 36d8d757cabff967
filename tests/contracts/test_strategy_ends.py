"""Every strategy to the end of a space, also of one that is too large to list."""

from __future__ import annotations

import itertools
import json
import random
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from slow_cases import quick_first

from greenfast.search.devices.facts import device
from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import expression
from greenfast.search.kernels.spec import Constraint, Parameter
from greenfast.search.space import lattice
from greenfast.search.space.space import Space
from greenfast.search.strategies import STRATEGIES
from greenfast.search.strategies.base import Infeasible, Objective, Options, Past

DRAWING = sorted(set(STRATEGIES) - {"exhaustive"})  # which lists its space, or is refused


class _Unlaunched(Space):
    """Its template launches nothing, so that only its constraints decide."""

    def _fits(self, values):
        return True

    def why_not(self, parameters):
        values = dict(parameters)
        for name, local in self.template.locals:
            values[name] = local(values)
        broken = [rule for rule in self.template.constraints if not rule.expression(values)]
        return broken[0].because if broken else None


def _space(album, counts, rules=(), when=(), locals_=()):
    """Parameters p0, p1, ... with values from 1 to their count."""
    parameters = [
        Parameter(f"p{number}", "int", tuple(range(1, count + 1)), 1, "", False, None)
        for number, count in enumerate(counts)
    ]
    for number, condition in when:
        parameters[number] = replace(
            parameters[number], when=expression(condition, f"p{number}.when")
        )
    spec = replace(
        album.kernel("axpy").template("right"),
        parameters=tuple(parameters),
        locals=tuple((name, expression(text, name)) for name, text in locals_),
        constraints=tuple(Constraint(expression(rule, rule), "broken") for rule in rules),
        launches=(),
        presets=(),
    )
    return _Unlaunched(spec, (), device("h200"))


def _asked(strategy, most, told=lambda candidate: Objective(0.1)):
    points = []
    for _ in range(most):
        proposal = strategy.ask()
        if proposal is None:
            break
        points.append(proposal.candidate.parameters)
        strategy.tell(proposal, told(proposal.candidate))
    return points


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@pytest.mark.parametrize("counts", [(1,), (2,), (1, 1, 1), (3, 2)])
@pytest.mark.parametrize("right", [True, False])
def test_an_exhausted_space_ends_a_search(name, counts, right, album):
    space = _space(album, counts)
    strategy = STRATEGIES[name]("axpy", {"right": space}, [], 3)
    points = _asked(strategy, 20, lambda _: Objective(0.1) if right else Infeasible())
    assert sorted(points) == sorted(space.points)
    assert strategy.ask() is None and strategy.ask() is None


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@pytest.mark.parametrize("seed", [-1, 2**70])
def test_any_whole_number_is_a_seed(name, seed, album):
    strategy = STRATEGIES[name]("axpy", {"right": _space(album, (3, 4))}, [], seed)
    assert len(_asked(strategy, 12)) == 12


@pytest.mark.parametrize("name", DRAWING)
def test_a_space_that_is_not_listed_ends_too(name, album, monkeypatch):
    """A space may have many combinations and few valid points."""
    space = _space(album, (4, 3, 3), ("p0 + p1 == 4", "p2 != p1"))
    monkeypatch.setattr(lattice, "LARGEST_WALK", 3)
    assert not space.is_listed
    monkeypatch.undo()
    strategy = STRATEGIES[name]("axpy", {"right": space}, [], 3)
    points = _asked(strategy, 20)
    values = itertools.product(range(1, 5), range(1, 4), range(1, 4))
    assert sorted(tuple(value for _, value in point) for point in points) == sorted(
        (a, b, c) for a, b, c in values if a + b == 4 and b != c
    )
    assert strategy.ask() is None


@pytest.mark.parametrize(
    "name", quick_first(["evolution", *(name for name in DRAWING if name != "evolution")], 1)
)
def test_a_resumed_search_of_a_space_that_is_not_listed_goes_on_alike(name, album):
    spaces = {"right": _space(album, (10,) * 13, ("p0 * p12 <= 9", "p4 < p5"))}

    def told(candidate):
        values = candidate.values()
        return Infeasible() if values["p3"] == 7 else Objective(0.1 * values["p0"] + values["p8"])

    strategy, past = STRATEGIES[name]("axpy", spaces, [], 3), []
    for _ in range(30):
        proposal = strategy.ask()
        strategy.tell(proposal, told(proposal.candidate))
        past.append(Past(proposal.candidate, json.loads(json.dumps(proposal.sampler)), None))
        past[-1] = replace(past[-1], told=told(proposal.candidate))
    resumed = STRATEGIES[name]("axpy", spaces, [], 3)
    resumed.restore(past[:18])
    assert _asked(resumed, 12, told) == [each.candidate.parameters for each in past[18:]]


@pytest.mark.slow
def test_a_search_of_many_generations_is_resumed(album):
    """The parents of each generation follow from those of the one before."""
    spaces = {"right": _space(album, (10,) * 6)}
    strategy = STRATEGIES["nsga2"]("axpy", spaces, [], 3, Options(population=4))
    first = strategy.ask()
    (generation,) = first.sampler
    rng = random.Random(3)
    points = dict.fromkeys(spaces["right"].drawn(rng) for _ in range(1700))
    past = [
        Past(replace(first.candidate, parameters=point), {generation: number // 4}, Objective(0.1))
        for number, point in enumerate(points)
    ]
    resumed = STRATEGIES["nsga2"]("axpy", spaces, [], 3, Options(population=4))
    resumed.restore(past)
    proposal = resumed.ask()
    assert proposal.candidate.parameters not in points
    assert proposal.sampler[generation] == len(past) // 4


# Each leaves about a millionth of 10^13 combinations. Rules join parameters that lie far apart.
RARE = {
    "chains": tuple(f"p{number} == p{number + 7}" for number in range(6)),
    "apart": ("p0 * p12 == 100", "p1 + p11 == 20", "p2 + p3 == p10 + 8", "p4 * p9 >= 90"),
    "guarded": ("p0 > 9 and p6 > 9", "100 % (p0 * p12) == 0", "p3 == p9", "p2 * p8 == 16"),
}


@pytest.mark.parametrize("rules", quick_first(RARE, 1))
def test_rare_points_of_a_huge_space_are_found_in_little_memory(rules, album):
    space = _space(album, (10,) * 13, RARE[rules])
    assert not space.is_listed
    tracemalloc.start()
    strategy = STRATEGIES["evolution"]("axpy", {"right": space}, [], 3)
    points = _asked(strategy, 16, lambda candidate: Objective(candidate.values()["p7"] * 0.1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(set(points)) == 16 and all(space.why_not(point) is None for point in points)
    assert peak < 20e6, "bytes"


def test_a_huge_space_without_a_valid_point_is_refused(album):
    space = _space(album, (10,) * 13, ("p0 + p12 == 50",))
    with pytest.raises(SpecError) as error:
        STRATEGIES["evolution"]("axpy", {"right": space}, [], 3).ask()
    assert error.value.code == "no_valid_point"


def test_many_points_are_judged_as_each_alone(album):
    """With locals, guards, and a parameter that exists under a condition."""
    space = _space(
        album,
        (4, 5, 6, 3, 4),
        ("p0 > 1", "12 % (p0 - 1) == 0", "area <= 12", "area * p4 > 3"),
        when=((3, "p1 > 2"),),
        locals_=(("area", "p1 * p2"),),
    )
    rng = random.Random(3)
    counts = [len(each.values) for each in space.template.parameters]
    rows = np.array([[rng.randrange(count) for count in counts] for _ in range(400)])
    rows = rows[rows[:, 0] > 0]  # without its guard the second rule has no value
    names = [each.name for each in space.template.parameters]
    points = [tuple(zip(names, (row + 1).tolist(), strict=True)) for row in rows]
    expected = [space.is_valid(point) for point in points]
    assert space.are_valid(rows).tolist() == expected == space.are_valid(rows).tolist()
    assert 0 < sum(expected) < len(expected)


def test_points_of_a_shipped_template_are_judged_as_each_alone(catalogue):
    kernel = catalogue.kernel("attention")
    template = kernel.template("wmma")
    compiled = kernel.workload("mission").compile_time(kernel)
    rng, space = random.Random(5), Space(template, compiled, device("h200"))
    valid = space.points.encoded[rng.sample(range(len(space.points)), 60)].astype(np.int64)
    rows = np.vstack([valid, valid])
    for row in rows[60:]:
        place = rng.randrange(len(row))
        row[place] = rng.randrange(len(template.parameters[place].values))
    listed = space.points.positions(rows.astype(space.points.encoded.dtype)) >= 0
    assert space.are_valid(rows).tolist() == listed.tolist()
    assert listed[:60].all() and not listed.all()
