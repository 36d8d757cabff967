"""More plans of bench.gpu.attention_variants: rests of keys, and who takes which rows."""

from __future__ import annotations

from typing import Any

from bench.gpu.attention_plans import (
    ALL,
    ALONE_ON_TWO,
    BOTH,
    ENCODER,
    ENDS,
    GRID,
    PAIR,
    PARTED,
    STAYS,
    Plan,
    design,
    points,
)
from bench.gpu.hopper_rows import CAUSAL
from bench.results import Row


def rests(base: Row, **axes: tuple[Any, ...]) -> list[Row]:
    return list(points(base, **axes, short_rest=BOTH))


def rests_encoder() -> list[Row]:
    """Tiles of which a length of 192 n + 1 or 5 leaves a few keys over, and those of 80 keys."""
    alone = {"consumers": 1, "blocks_per_sm": 3, **ENCODER}
    three = design(3, 96, turns=True, lazy_rescale=True, heads_together=1)
    stays = {"scheduler": "persistent_all", "q_buffers": 2, "heads_together": 1}
    return [
        *rests({**PAIR, "sum_columns": True}, tile_n=(64, 80, 96, 112, 128, 144)),
        *rests({**PAIR, "loader": "self"}, tile_n=(64, 96, 128)),
        *rests({**PAIR, "sum_columns": True, "stages": 3}, tile_n=(64, 80)),
        *rests({**alone, "stages": 2, "sum_columns": True}, tile_n=(64, 80, 96)),
        *rests({**alone, "stages": 2, "loader": "self"}, tile_n=(64, 96, 112)),
        *rests({**alone, "stages": 3, **stays}, tile_n=(64, 80)),
        *rests({**PAIR, "sum_columns": True, **stays}, tile_n=(64, 80, 96)),
        *rests(three, tile_n=(64, 96, 192)),
        *rests({**PAIR, "sum_columns": True, "tile_n": 80}, masks_apart=BOTH, lazy_rescale=BOTH),
        *rests({**PAIR, "sum_columns": True, "tile_n": 80}, epilogue=ENDS, heads_together=(4, 8)),
    ]


def rests_prefill() -> list[Row]:
    grid = design(2, 128, heads_together=64, lazy_rescale=True)
    stays = {**grid, "scheduler": "persistent_all", "q_buffers": 2}
    eight = {**grid, "heads_together": 8, "lazy_rescale": False}
    return [
        *rests({**stays, "turns": True}, tile_n=(64, 96, 112, 128)),
        *rests({**stays, "turns": True, **PARTED}, tile_n=(64, 96, 112, 128)),
        *rests({**grid, "turns": True, **PARTED}, tile_n=(128, 160, 176)),
        *rests(grid, tile_n=(64, 128), turns=BOTH),
        *rests({**eight, "turns": False}, tile_n=(112, 128, 144)),
        *rests({**eight, "turns": True, **PARTED}, tile_n=(112, 128, 160)),
        *rests({**stays, "turns": True, "heads_together": 32}, tile_n=(128,)),
    ]


def rests_prefill_small_heads() -> list[Row]:
    small = {"consumers": 1, "stages": 3, "blocks_per_sm": 3, **ENCODER, "heads_together": 64}
    pair = {**PAIR, "stages": 3, "heads_together": 64}
    three = design(3, 128, heads_together=64, turns=True)
    return [
        *rests({**small, "sum_columns": True}, tile_n=(64, 80, 96)),
        *rests({**small, "tile_n": 64, "stages": 4}),
        *rests(pair, tile_n=(64, 80, 96), epilogue=ENDS),
        *rests({**pair, **ALL, "q_buffers": 2}, tile_n=(64, 80, 96)),
        *rests({**three, **ALL, "q_buffers": 2}, tile_n=(96, 128), lazy_rescale=BOTH),
        *rests({**three, "epilogue": "direct"}, tile_n=(96, 128)),
        *rests({**ALONE_ON_TWO, "masks_apart": True, "heads_together": 16}, tile_n=(96, 128)),
    ]


def rests_long_small_heads() -> list[Row]:
    three = design(3, 128, turns=True)
    return [
        *rests({**three, **ALL, "q_buffers": 2}, tile_n=(112, 128), lazy_rescale=BOTH),
        *rests({**three, **ALL, "q_buffers": 2}, heads_together=(1, 16), stages=(2, 3)),
        *rests({**three, **GRID}, tile_n=(112, 128), lazy_rescale=BOTH),
        *rests({**three, **GRID}, heads_together=(1, 8), epilogue=ENDS),
        *rests({**three, **ALL, "q_buffers": 2, **PARTED}, lazy_rescale=BOTH),
        *rests({**PAIR, "stages": 3, "heads_together": 64}, tile_n=(80, 96), epilogue=ENDS),
    ]


def rests_medium() -> list[Row]:
    stays = {"scheduler": "persistent_all", "q_buffers": 2}
    small = {"consumers": 1, "stages": 2, "blocks_per_sm": 2, **ENCODER}
    pair = {"consumers": 2, "stages": 2, **ENCODER}
    return [
        *rests(small, tile_n=(64, 80, 96, 112), overlap=BOTH),
        *rests({**pair, **stays, "turns": True}, tile_n=(80, 96, 112, 128)),
        *rests(pair, tile_n=(96, 112, 128), turns=BOTH),
        *rests({**pair, "consumers": 3, "overlap": False}, tile_n=(96, 112, 128)),
    ]


SCHEDULERS = ("grid", "persistent_all", "persistent_spread")


def scheduled(base: Row, **axes: tuple[Any, ...]) -> list[Row]:
    """Each by a grid of blocks, by blocks that stay, and with the last round's rows shared out."""
    return list(points({**base, "heads_together": 1}, **axes, scheduler=SCHEDULERS))


def spread_small_heads() -> list[Row]:
    three = design(3, 128, turns=True)
    spread = {**three, **STAYS, "scheduler": "persistent_spread"}
    pair = {**PAIR, "tile_n": 80}
    return [
        *scheduled(three, tile_n=(96, 112, 128), short_rest=BOTH, epilogue=ENDS),
        *scheduled({**three, "lazy_rescale": True}, short_rest=BOTH),
        *points({**three, **STAYS}, q_buffers=(1, 2), lazy_rescale=BOTH),
        *points(spread, tile_n=(112, 128, 144), lazy_rescale=BOTH, epilogue=ENDS),
        *points(spread, heads_together=(4, 8), stages=(2, 3)),
        *points({**spread, "ordered": True}, ordered_part=("all", "half", "maxima")),
        *points({**spread, "turns": False}, lazy_rescale=BOTH),
        *scheduled({**pair, "sum_columns": True}, tile_n=(64, 80, 96), short_rest=BOTH),
        *scheduled(pair, tile_n=(80, 128), short_rest=BOTH),
        *scheduled({**design(3, 128), "overlap": False, "lazy_rescale": True}),
        *points({**PAIR, "loader": "self", "tile_n": 128, "heads_together": 8}, masks_apart=BOTH),
        *scheduled(design(2, 192, turns=True), epilogue=ENDS),
    ]


def spread_large_heads() -> list[Row]:
    two = design(2, 128, turns=True, lazy_rescale=True)
    return [
        *scheduled(two, tile_n=(96, 112, 128, 160, 176)),
        *scheduled({**two, **PARTED}, tile_n=(128, 160, 176), epilogue=ENDS),
        *scheduled(design(3, 96, overlap=False, lazy_rescale=True), tile_n=(96, 112, 128)),
        *scheduled({**two, "q_buffers": 2}, tile_n=(96, 112, 128), short_rest=BOTH),
        *scheduled({**two, "turns": False}, tile_n=(96, 128)),
    ]


RESTS: Plan = {
    "B=8,H=16,S_q=577,D=64": rests_encoder,
    "B=32,H=12,S_q=197,D=64": rests_encoder,
    "B=16,H=16,S_q=257,D=64": rests_encoder,
    "B=1,H=32,H_kv=8,S_q=1024,D=128" + CAUSAL: rests_prefill,
    "B=1,H=32,H_kv=8,S_q=2560,D=128" + CAUSAL: rests_prefill,
    "B=4,H=16,S_q=4096,D=128" + CAUSAL: rests_prefill,
    "B=2,H=8,S_q=2048,D=64" + CAUSAL: rests_prefill_small_heads,
    "B=1,H=32,H_kv=8,S_q=1000,D=64" + CAUSAL: rests_prefill_small_heads,
    "B=1,H=32,H_kv=8,S_q=2560,D=64" + CAUSAL: rests_prefill_small_heads,
    "B=4,H=16,S_q=4096,D=64" + CAUSAL: rests_long_small_heads,
    "B=1,H=16,S_q=16384,D=64" + CAUSAL: rests_long_small_heads,
    "B=4,H=16,S_q=300,D=128": rests_medium,
    "B=4,H=16,S_q=600,D=128": rests_medium,
}

SPREAD: Plan = {
    "B=2,H=8,S_q=2048,D=64": spread_small_heads,
    "B=4,H=16,S_q=4096,D=64": spread_small_heads,
    "B=1,H=16,S_q=16384,D=64": spread_small_heads,
    "B=8,H=16,S_q=577,D=64": spread_small_heads,
    "B=2,H=16,S_q=1100,D=64": spread_small_heads,
    "B=8,H=16,S_q=600,D=64": spread_small_heads,
    "B=4,H=16,S_q=4096,D=128": spread_large_heads,
    "B=1,H=16,S_q=16384,D=128": spread_large_heads,
    "B=4,H=16,S_q=300,D=128": spread_large_heads,
    "B=4,H=16,S_q=600,D=128": spread_large_heads,
    "B=8,H=12,S_q=500,D=128": spread_large_heads,
    "B=2,H=16,S_q=900,D=128": spread_large_heads,
}

ROW_PLANS = {"rests": RESTS, "spread": SPREAD}
