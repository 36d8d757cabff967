"""Rules of the shipped set end where one more wave of blocks would cost a kernel its gain."""

from __future__ import annotations

import pytest

from bench.gpu.waves import Waves, folded
from greenfast.search.kernels.expressions import expression

GRID = (
    "min(ceil_div(S_q, 2 * tile_m), max(sm_count // max(H * B, 1), 1)) "
    "if scheduler == 'persistent' else ceil_div(S_q, tile_m) * split_kv"
)
TILES = Waves(expression("ceil_div(S_q, 64) * H * B", "blocks"), 132)
POINT = {"B": 3, "H": 8, "S_q": 256}  # 96 blocks, one wave


@pytest.mark.parametrize(
    ("constants", "text"),
    [
        ({"scheduler": "grid", "tile_m": 64, "split_kv": 1}, "ceil_div(S_q, 64)"),
        ({"scheduler": "grid", "tile_m": 64, "split_kv": 4}, "ceil_div(S_q, 64) * 4"),
        (
            {"scheduler": "persistent", "tile_m": 64, "sm_count": 132},
            "min(ceil_div(S_q, 128), max(132 // max(H * B, 1), 1))",
        ),
    ],
)
def test_a_grid_is_told_in_dims_alone(constants, text):
    assert folded(GRID, constants) == text


@pytest.mark.parametrize(
    ("ratio", "farthest", "limited"),
    [
        (0.6, {"B": 4, "S_q": 300}, True),  # 160 blocks: twice the time, and 1.2 of the library's
        (0.4, {"B": 4, "S_q": 300}, False),  # twice the time, and still 0.8
        (0.6, {"B": 3, "S_q": 320}, False),  # 120 blocks, still one wave
    ],
)
def test_a_rule_ends_before_a_wave_that_costs_the_gain(ratio, farthest, limited):
    expected = {"value": "ceil_div(S_q, 64) * H * B", "above": 0, "at_most": 132}
    assert TILES.limit(POINT, {**POINT, **farthest}, ratio) == (expected if limited else {})


def test_one_more_of_many_waves_limits_nothing():
    point = {"B": 32, "H": 16, "S_q": 256}  # 2,048 blocks, 16 waves
    assert TILES.limit(point, {**point, "B": 40}, 0.93) == {}
