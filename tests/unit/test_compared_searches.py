"""Which searches count in the comparison of strategies."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bench.speed import search_quality
from bench.speed.search_quality import complete_lines
from bench.speed.search_quality_spaces import MeasuredSpace
from greenfast.app.views.comparing import unified
from greenfast.search.kernels.spec import Parameter

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


def test_sources_that_differ_in_many_lines_are_not_aligned():
    # Drawn lines of a few kinds: 30,000 of them would take difflib minutes.
    before = ["same"] * 5 + [f"{at * at % 113};" for at in range(30_000)] + ["end"] * 5
    after = ["same"] * 5 + [f"{at * at % 127};" for at in range(1, 30_000)] + ["end"] * 5
    lines = list(unified(before, after, names=("a", "b")))
    assert lines[:3] == ["--- a", "+++ b", "@@ -3,30006 +3,30005 @@"]
    assert [line[1:] for line in lines[3:] if line[0] in " -"] == before[2:-2]
    assert [line[1:] for line in lines[3:] if line[0] in " +"] == after[2:-2]
    assert len(list(unified(before, [*before[:99], "other", *before[99:]], names=("a", "b")))) == 10
