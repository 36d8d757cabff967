"""Where `evolution` begins, and which searches count in its comparison with others."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bench.speed import search_quality
from bench.speed.search_quality import complete_lines
from bench.speed.search_quality_spaces import MeasuredSpace
from greenfast.search.kernels.spec import Parameter
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.strategies import STRATEGIES, Objective

SIZES, LAYOUTS, UNROLLS = (16, 32, 64, 128, 256), ("row", "column", "tiled"), (1, 2, 4, 8)


@pytest.fixture
def grid():
    """All combinations, the time of which is the size of the tile."""
    parameters = (
        Parameter("tile_m", "int", SIZES, SIZES[0], "", False, None),
        Parameter("layout", "choice", LAYOUTS, LAYOUTS[0], "", False, None),
        Parameter("unroll", "int", UNROLLS, UNROLLS[0], "", False, None),
    )
    names = [parameter.name for parameter in parameters]
    points = tuple(
        tuple(zip(names, values, strict=True))
        for values in itertools.product(SIZES, LAYOUTS, UNROLLS)
    )
    times = np.array([float(dict(point)["tile_m"]) for point in points])
    return MeasuredSpace("grid", parameters, points, times)


def _strategy(grid, seed, seeds=()):
    return STRATEGIES["evolution"]("grid", {"recorded": grid.searched()}, seeds, seed)


def test_the_first_point_has_middle_values_and_any_of_those_without_an_order(grid):
    first = [_strategy(grid, seed).ask().candidate.values() for seed in range(40)]
    assert {values["tile_m"] for values in first} == {64}
    assert {values["unroll"] for values in first} == {2, 4}  # both are in the middle of four
    assert {values["layout"] for values in first} == set(LAYOUTS)


def test_a_search_that_begins_with_a_known_candidate_needs_no_middle(grid):
    seeds = [Candidate("grid", "recorded", grid.points[0], Origin(OriginKind.SEEDED))]
    sizes = set()
    for seed in range(10):
        strategy = _strategy(grid, seed, seeds)
        proposal = strategy.ask()
        assert proposal.candidate.parameters == grid.points[0]
        strategy.tell(proposal, Objective(0.0))
        sizes.add(strategy.ask().candidate.values()["tile_m"])
    assert sizes - {64}


def _searches(strategy, seeds):
    return [
        {
            "space": "grid",
            "strategy": strategy,
            "seed": seed,
            "budget": 60,
            "curve": [[1, 32.0], [3, 16.0]],
        }
        for seed in seeds
    ]


def test_others_may_have_fewer_searches_and_strategies_of_ours_may_not(grid, monkeypatch, capsys):
    monkeypatch.setattr(search_quality, "_spaces", {"grid": grid})
    holed = [seed for seed in range(30) if seed != 22]  # what follows the hole does not count
    rows = [
        *_searches("evolution", range(24)),
        *_searches("gp", range(23)),
        *_searches("kernel_tuner pso", holed),
        *_searches("kernel_tuner bayes_opt", range(19)),
    ]
    means = [row for row in complete_lines(rows, 24, 60) if row["what"] == "strategy"]
    assert {row["strategy"]: row["searches"] for row in means} == {
        "evolution": 24,
        "kernel_tuner pso": 22,
    }
    messages = capsys.readouterr().err
    assert "gp has only 23 of 24" in messages and "bayes_opt has only 19 of 24" in messages
