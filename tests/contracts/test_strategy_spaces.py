"""Every strategy on spaces as other people have them: odd values, single points, failed ones."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from bench.speed.search_quality import searched
from bench.speed.search_quality_spaces import MeasuredSpace
from greenfast.search.kernels.spec import Parameter
from greenfast.search.strategies import STRATEGIES
from greenfast.search.strategies.base import Infeasible, Objective


def _parameter(name, kind, values):
    return Parameter(name, kind, tuple(values), values[0], "", False, None)


def _space(parameters, time_of, keep=lambda point: True):
    """A space of all combinations that `keep` holds for; a time of None is a failed point."""
    points = [
        tuple(zip((each.name for each in parameters), values, strict=True))
        for values in itertools.product(*(each.values for each in parameters))
    ]
    points = [point for point in points if keep(dict(point))]
    times = [time_of(dict(point)) for point in points]
    return MeasuredSpace(
        "space",
        tuple(parameters),
        tuple(points),
        np.array([math.inf if time is None else float(time) for time in times]),
    )


MIXED = (
    _parameter("block_size_x", "int", (16, 32, 48, 64, 96, 128)),
    _parameter("block_size_y", "int", (1, 2, 4, 8)),
    _parameter("constant", "int", (7,)),
    _parameter("layout", "choice", ("row", "column", "tiled")),
    _parameter("fraction", "choice", ("0.25", "0.5", "1.0")),
    _parameter("padded", "bool", (False, True)),
    _parameter("offset", "int", (-2, 0, 3)),
)


def _mixed_time(point):
    if point["block_size_x"] * point["block_size_y"] > 256 or point["offset"] < 0:
        return None
    time = 1 + abs(math.log2(point["block_size_x"] * point["block_size_y"] / 128))
    time *= {"row": 1.0, "column": 1.6, "tiled": 0.8}[point["layout"]]
    return time * (1.3 - float(point["fraction"]) / 4) * (0.9 if point["padded"] else 1.0)


SPACES = {
    "values of every kind, half of the points failed": lambda: _space(MIXED, _mixed_time),
    "restrictions leave few": lambda: _space(
        MIXED,
        _mixed_time,
        lambda point: point["block_size_x"] % 32 == 0 and point["block_size_y"] == 4,
    ),
    "one point": lambda: _space((_parameter("a", "int", (1,)),), lambda point: 1.0),
    "one parameter of two values": lambda: _space(
        (_parameter("a", "bool", (False, True)),), lambda point: 2.0 - point["a"]
    ),
    "all failed but one": lambda: _space(
        (_parameter("a", "int", tuple(range(30))), _parameter("b", "int", (0, 1))),
        lambda point: 1.0 if (point["a"], point["b"]) == (17, 1) else None,
    ),
    "all equally fast": lambda: _space(
        (_parameter("a", "int", tuple(range(20))), _parameter("b", "int", (1, 2))),
        lambda point: 3.0,
    ),
}


@pytest.fixture(scope="module", params=SPACES)
def space(request):
    return SPACES[request.param]()


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_points_are_of_the_space_and_tried_once_until_it_is_exhausted(name, space):
    strategy = STRATEGIES[name]("space", {"recorded": space.searched()}, [], 3)
    tried, most = [], min(len(space.points), 40)
    for _ in range(most):
        proposal = strategy.ask()
        tried.append(proposal.candidate.parameters)
        time = space.time_of[tried[-1]]
        strategy.tell(proposal, Objective(math.log(time)) if time < math.inf else Infeasible())
    assert len(set(tried)) == most
    if most == len(space.points):
        assert strategy.ask() is None


def test_evolution_needs_fewer_points_than_random_search_where_most_fail():
    space = SPACES["values of every kind, half of the points failed"]()
    assert np.isinf(space.times).mean() >= 0.5
    needed = [searched(space, "evolution", seed, 150)["curve"][-1][0] for seed in range(3)]
    assert np.median(needed) < 75  # random search needs hundreds


LIMITED = (
    _parameter("block", "int", (32, 64, 128, 256, 512)),
    _parameter("tile_x", "int", (1, 2, 3, 4, 5, 6, 8)),
    _parameter("tile_y", "int", (1, 2, 3, 4, 5, 6, 8)),
    _parameter("stages", "int", (1, 2, 3, 4)),
    _parameter("unroll", "int", (1, 2, 4, 8)),
    _parameter("vector", "int", (1, 2, 4)),
)


def _limited_time(point):
    """The faster, the more it holds in registers and shared memory, up to their limits."""
    tile = point["tile_x"] * point["tile_y"]
    if point["block"] * tile * point["stages"] > 2048 or point["tile_x"] % point["vector"]:
        return None
    if tile * point["vector"] + 2 * point["unroll"] > 24:
        return None
    time = (1 + 2 / tile) * (1 + 1 / point["unroll"]) * (1 + 0.5 / point["stages"])
    return time * (1 + 0.3 / point["vector"]) * (1 + 16 / point["block"])


@pytest.mark.slow
def test_evolution_does_not_stay_beyond_the_limits_of_a_space_that_fails_mostly():
    space = _space(LIMITED, _limited_time)
    assert np.isinf(space.times).mean() > 0.8
    failed = 0
    for seed in range(3):
        strategy = STRATEGIES["evolution"]("space", {"recorded": space.searched()}, [], seed)
        for number in range(100):
            proposal = strategy.ask()
            time = space.time_of[proposal.candidate.parameters]
            right = math.isfinite(time)
            failed += number >= 40 and not right
            strategy.tell(proposal, Objective(math.log(time)) if right else Infeasible())
    assert failed < 0.75 * 180  # 156 of them without a least chance of being correct


def test_a_noisy_objective_does_not_stop_a_search():
    space = SPACES["values of every kind, half of the points failed"]()
    dice = random.Random(1)
    strategy = STRATEGIES["evolution"]("space", {"recorded": space.searched()}, [], 3)
    best = math.inf
    for _ in range(80):
        proposal = strategy.ask()
        time = space.time_of[proposal.candidate.parameters]
        best = min(best, time)
        noise = dice.gauss(0.0, 0.1)
        told = Objective(math.log(time) + noise) if time < math.inf else Infeasible()
        strategy.tell(proposal, told)
    assert best <= 1.1 * space.times.min()


@pytest.mark.parametrize("name", ["nsga2", "tpe"])
def test_a_sampler_learns_also_where_a_space_has_another_name_than_its_template(name):
    """Its choices depend on outcomes: two landscapes on the same space lead to others."""
    space = SPACES["values of every kind, half of the points failed"]()
    ways = []
    for sign in (1.0, -1.0):
        strategy = STRATEGIES[name]("space", {"another name": space.searched()}, [], 3)
        way = []
        for _ in range(40):
            proposal = strategy.ask()
            way.append(proposal.candidate.parameters)
            place = space.points.index(way[-1])
            strategy.tell(proposal, Objective(sign * place / len(space.points)))
        ways.append(way)
    assert ways[0][:4] == ways[1][:4] and ways[0] != ways[1]
