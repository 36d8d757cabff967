"""Plans of bench.gpu.attention_variants: for each row, points of attention/wgmma to time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from bench.gpu.hopper_rows import CAUSAL
from bench.results import Row


def points(base: Row, **axes: tuple[Any, ...]) -> Iterator[Row]:
    for values in itertools.product(*axes.values()):
        yield {**base, **dict(zip(axes, values, strict=True))}


STAYS: Row = {"scheduler": "persistent", "q_buffers": 2, "heads_together": 1, "epilogue": "direct"}
GRID: Row = {"scheduler": "grid", "heads_together": 64, "epilogue": "direct"}
ALONE: Row = {**GRID, "heads_together": 1}  # a head's row tiles one after another
MIXED: Row = {**GRID, "heads_together": 32}
ALL: Row = {**MIXED, "scheduler": "persistent_all", "heads_together": 64}
BOTH = (False, True)
ENDS = ("tensor", "direct")
PARTED: Row = {"ordered": True, "ordered_part": "half"}
ENCODER: Row = {"masks_apart": True, "lazy_rescale": True, "heads_together": 1}
PAIR: Row = {"consumers": 2, "stages": 2, "blocks_per_sm": 2, "overlap": False, **ENCODER}
ALONE_ON_TWO: Row = {"consumers": 1, "stages": 2, "blocks_per_sm": 2}
Plan = dict[str, Callable[[], list[Row]]]  # the points of each row


def design(consumers: int, tile_n: int, **more: Any) -> Row:
    return {"consumers": consumers, "tile_n": tile_n, "stages": 2, "masks_apart": True, **more}


def small_heads() -> list[Row]:
    three, two = design(3, 128, **STAYS), design(2, 192, **STAYS)
    return [
        *points(three, turns=(True,), ordered=BOTH, lazy_rescale=BOTH, exp_polynomial=(0, 1, 2)),
        *points(three, turns=(False,), ordered=BOTH),
        *points(design(3, 128, **ALONE), turns=(True,), ordered=BOTH),
        *points(two, turns=(True,), ordered=BOTH),
        *points({**three, **PARTED, "turns": True}, lazy_rescale=BOTH),
        *points({**two, **PARTED, "turns": True}, lazy_rescale=BOTH),
        *points({**three, "overlap": False}, lazy_rescale=BOTH),
    ]


def small_heads_causal() -> list[Row]:
    pair = design(2, 80, **GRID) | {"overlap": False, "stages": 3, "blocks_per_sm": 2}
    three = design(3, 128, **GRID)
    ends = ("tensor", "direct")
    return [
        *points(three, turns=(True,), ordered=BOTH, lazy_rescale=BOTH, exp_polynomial=(0, 1)),
        *points(pair, tile_n=(64, 80, 96), lazy_rescale=BOTH, epilogue=ends),
        *points({**three, "overlap": False}, lazy_rescale=BOTH),
        *points({**three, **ALL, "q_buffers": 2}, turns=(True,), ordered=BOTH, lazy_rescale=BOTH),
        *points({**pair, **ALL, "q_buffers": 2}, tile_n=(64, 80), lazy_rescale=BOTH),
        *points(design(2, 64, **GRID), lazy_rescale=BOTH, turns=BOTH),
        *points(design(2, 64, q_buffers=2, **ALL), lazy_rescale=BOTH, turns=BOTH),
    ]


def many_short() -> list[Row]:
    small = {"consumers": 1, "tile_n": 64, "stages": 3, "blocks_per_sm": 3, "lazy_rescale": True}
    alone = {"consumers": 1, "tile_n": 112, "stages": 2, "blocks_per_sm": 3, "loader": "self"}
    schedulers = ("grid", "persistent", "persistent_all")
    return [
        *points({**small, "heads_together": 1}, scheduler=schedulers[:1]),
        *points({**small, "heads_together": 1, "q_buffers": 2}, scheduler=schedulers[1:]),
        *points(alone, scheduler=schedulers, tile_n=(64, 112)),
        *points(design(2, 64, q_buffers=2, blocks_per_sm=2), scheduler=schedulers[1:]),
    ]


def causal_walks() -> list[Row]:
    """Who takes which row tiles, where they differ in length."""
    stays = {"q_buffers": 2, "heads_together": 64, "lazy_rescale": True, "epilogue": "direct"}
    designs = (design(2, 128, turns=True, **stays), design(2, 64, **stays), design(3, 128, **stays))
    return [
        point
        for base in designs
        for point in (
            {name: value for name, value in base.items() if name != "q_buffers"},
            *points(base, scheduler=("persistent", "persistent_all")),
        )
    ]


def large_heads() -> list[Row]:
    stays, alone = design(2, 128, turns=True, **STAYS), design(2, 128, turns=True, **ALONE)
    three = design(3, 128, overlap=False, **ALONE)
    return [
        *points(stays, ordered=BOTH, lazy_rescale=BOTH, exp_polynomial=(0, 1)),
        *points(alone, ordered=BOTH, lazy_rescale=BOTH, tile_n=(128, 160, 176)),
        *points({**stays, "q_buffers": 1}, ordered=BOTH, lazy_rescale=BOTH, tile_n=(160, 176)),
        *points(three, tile_n=(96, 112, 128), lazy_rescale=BOTH, epilogue=("tensor", "direct")),
        *points({**stays, "ordered": True}, ordered_part=("half", "maxima"), lazy_rescale=BOTH),
        *points({**alone, **PARTED}, lazy_rescale=BOTH, tile_n=(128, 160, 176)),
        *points({**stays, **PARTED, "q_buffers": 1}, lazy_rescale=BOTH, tile_n=(160, 176)),
        *points({**stays, "scheduler": "persistent_all"}, ordered=(True,), lazy_rescale=(True,)),
    ]


def large_heads_causal() -> list[Row]:
    mixed = design(2, 128, **MIXED)
    tiles = (64, 96, 128, 160, 176)
    return [
        *points(mixed, turns=(True,), ordered=BOTH, lazy_rescale=BOTH, tile_n=tiles),
        *points(mixed, turns=(False,), ordered=BOTH, lazy_rescale=BOTH, tile_n=(64, 128)),
        *points({**mixed, **PARTED}, turns=BOTH, lazy_rescale=BOTH, tile_n=(128, 160, 176)),
        *points({**mixed, "overlap": False, "consumers": 3}, lazy_rescale=BOTH, tile_n=(96, 128)),
        *points(design(2, 128, q_buffers=2, **ALL), turns=BOTH, ordered=BOTH, tile_n=(64, 128)),
        *points(design(2, 128, **ALL), turns=(True,), lazy_rescale=BOTH, tile_n=(160, 176)),
        *points(design(2, 128, turns=True, **ALL, **PARTED), q_buffers=(1, 2), lazy_rescale=BOTH),
        *points(design(2, 128, turns=True, **ALL, **PARTED), tile_n=(160, 176), lazy_rescale=BOTH),
    ]


def medium_heads() -> list[Row]:
    small = {"consumers": 1, "stages": 2, "blocks_per_sm": 2, **ENCODER}
    pair = {"consumers": 2, "stages": 2, **ENCODER}
    stays = {"scheduler": "persistent_all", "q_buffers": 2, "turns": True}
    three = {**pair, "consumers": 3, "overlap": False}
    tiles = (80, 96, 112, 128)
    return [
        *points(small, tile_n=(64, *tiles[:3]), overlap=BOTH, loader=("producer", "self")),
        *points({**small, "epilogue": "direct"}, tile_n=(80, 96), overlap=BOTH),
        *points({**small, "scheduler": "persistent_all"}, tile_n=(80, 96), overlap=BOTH),
        *points(pair, tile_n=(*tiles, 144, 160), turns=BOTH),
        *points({**pair, **stays}, tile_n=tiles),
        *points(three, tile_n=tiles),
        *points({**three, "epilogue": "direct", "scheduler": "persistent_all"}, tile_n=tiles),
        *points({**pair, "turns": True, **PARTED}, tile_n=(80, 112, 128)),
    ]


def medium_small_heads() -> list[Row]:
    pair = {"consumers": 2, "blocks_per_sm": 2, "overlap": False, **ENCODER}
    small = {"consumers": 1, "blocks_per_sm": 3, **ENCODER}
    stays = {"scheduler": "persistent_all", "stages": 3}
    loaders, ends = ("producer", "self"), ("tensor", "direct")
    return [
        *sums({**pair, "stages": 2}, tile_n=(64, 80, 96, 112, 128), loader=loaders),
        *sums({**pair, "stages": 3}, tile_n=(64, 80), epilogue=ends),
        *sums({**small, "stages": 2}, tile_n=(64, 80, 96), loader=loaders, overlap=BOTH),
        *sums({**small, **stays}, tile_n=(64, 80), overlap=BOTH),
    ]


def sums(base: Row, **axes: tuple[Any, ...]) -> list[Row]:
    return list(points(base, **axes, sum_columns=BOTH))


def sums_long() -> list[Row]:
    three = design(3, 128, **STAYS, turns=True)
    return [
        *sums(three, lazy_rescale=BOTH, exp_polynomial=(0, 1)),
        *sums({**three, "turns": False}),
        {**three, **PARTED},
        *sums(three, tile_n=(112, 144)),
        *sums(design(2, 192, **STAYS, turns=True), tile_n=(176, 192)),
    ]


def sums_medium() -> list[Row]:
    pair = {**PAIR, "loader": "self", "tile_n": 128}
    own = {**PAIR, "loader": "producer"}
    return [
        *sums(pair, masks_apart=BOTH, exp_polynomial=(0, 1)),
        *sums({**pair, "masks_apart": False}, tile_n=(112, 144)),
        *sums({**own, "tile_n": 128, "masks_apart": False}),
        *sums({**own, "tile_n": 80, "masks_apart": True}),
        *sums(design(3, 128, **STAYS, turns=True), lazy_rescale=BOTH),
        *sums({**ALONE_ON_TWO, "tile_n": 128}, lazy_rescale=BOTH),
    ]


def sums_encoder() -> list[Row]:
    pair = {**PAIR, "masks_apart": True}
    alone = {"consumers": 1, "stages": 2, "blocks_per_sm": 3, "loader": "self"}
    alone |= {"masks_apart": True, "lazy_rescale": True}
    return [
        *sums(pair, tile_n=(64, 80, 96, 112, 128, 144), loader=("producer", "self")),
        *sums(alone, tile_n=(96, 112, 128)),
        *points({**pair, "sum_columns": True, "exp_polynomial": 1}, tile_n=(80, 128)),
    ]


def sums_causal() -> list[Row]:
    pair = design(2, 80, **GRID) | {"overlap": False, "stages": 3, "blocks_per_sm": 2}
    pair |= {"lazy_rescale": True}
    three = design(3, 128, **GRID, turns=True)
    alone = {**ALONE_ON_TWO, "tile_n": 128, "masks_apart": True, "heads_together": 16}
    return [
        *sums(pair, tile_n=(64, 80, 96), epilogue=("tensor", "direct")),
        *sums(three, lazy_rescale=BOTH),
        {**three, "sum_columns": True, "exp_polynomial": 1},
        *sums({**three, **ALL, "q_buffers": 2}, lazy_rescale=BOTH),
        *sums({**pair, **ALL, "q_buffers": 2}, tile_n=(64, 80)),
        *sums(alone, lazy_rescale=BOTH),
    ]


def sums_prefill() -> list[Row]:
    small = {"consumers": 1, "stages": 3, "blocks_per_sm": 3, **ENCODER, "heads_together": 64}
    pair = design(2, 80, **GRID) | {"overlap": False, "stages": 3, "blocks_per_sm": 2}
    pair |= {"lazy_rescale": True}
    return [
        {**small, "tile_n": 64, "stages": 4, **PARTED},
        *sums(small, tile_n=(64, 80, 96)),
        *sums({**small, "tile_n": 64, "stages": 4}),
        *sums({**small, "overlap": False}, tile_n=(64, 80, 96)),
        *sums(pair, tile_n=(64, 80)),
        *sums({**pair, **ALL, "q_buffers": 2}, tile_n=(64, 80)),
        *sums({**design(2, 64, **GRID), "lazy_rescale": True}),
    ]


def outputs(base: Row, **more: Any) -> list[Row]:
    """In turns, rescaled in each step."""
    base = {**base, **more, "turns": True}
    return [
        *points(base, tile_n=(128, 144, 160, 176), epilogue=ENDS),
        *points(
            {**base, "ordered": True},
            tile_n=(128, 160, 176),
            ordered_part=("all", "half", "maxima"),
        ),
    ]


def outputs_large_heads() -> list[Row]:
    grid = design(2, 128, heads_together=1)
    stays = {**grid, "scheduler": "persistent", "turns": True}
    parted = {**stays, **PARTED}
    return [
        *outputs(grid),
        *points(stays, tile_n=(128, 160, 176), epilogue=ENDS),
        *points(parted, tile_n=(160, 176), epilogue=ENDS),
        *points({**parted, "lazy_rescale": True, "epilogue": "direct"}, tile_n=(160, 176)),
        *points({**parted, "stages": 3, "epilogue": "direct"}, tile_n=(112, 128)),
        *points({**grid, "stages": 3}, tile_n=(112, 128), turns=BOTH),
    ]


def outputs_large_heads_causal() -> list[Row]:
    grid = design(2, 176, heads_together=8)
    turns = {**grid, "turns": True}
    return [
        *outputs(grid),
        *points(turns, heads_together=(1, 4, 16, 32), tile_n=(128, 176)),
        *points(turns, lazy_rescale=(True,), epilogue=ENDS),
        {**turns, "masks_apart": False},
        *points(grid, heads_together=(4, 8, 16), tile_n=(112, 128, 144)),
        *points(grid, tile_n=(96, 160, 176)),
        *points({**grid, **PARTED}, tile_n=(112, 128, 144)),
        *points({**grid, "lazy_rescale": True}, tile_n=(112, 128)),
        *points({**grid, "stages": 3}, tile_n=(96, 112, 128), turns=BOTH),
    ]


def outputs_prefill() -> list[Row]:
    grid = design(2, 128, heads_together=64)
    stays = {**grid, "turns": True, "scheduler": "persistent_all", "q_buffers": 2}
    return [
        *outputs(grid),
        *points(grid, tile_n=(64, 80, 96), turns=BOTH, lazy_rescale=BOTH),
        *points(grid, tile_n=(112, 128), lazy_rescale=BOTH),
        *points(stays, tile_n=(64, 128), ordered=BOTH, lazy_rescale=BOTH),
        *points({**stays, "lazy_rescale": True}, tile_n=(80, 96, 112), turns=BOTH),
        *points({**stays, "lazy_rescale": True}, heads_together=(16, 32)),
        *points({**stays, "lazy_rescale": True, "stages": 3}, tile_n=(64, 80, 96), turns=BOTH),
        *points({**stays, "lazy_rescale": True, **PARTED}, tile_n=(112, 128)),
        {**stays, "lazy_rescale": True, "q_buffers": 1, "stages": 3},
    ]


def outputs_small_heads() -> list[Row]:
    three = design(3, 128, turns=True)
    stays = {**three, "q_buffers": 2}
    everywhere = {**stays, "scheduler": "persistent_all"}
    return [
        *points(three, heads_together=(1, 8, 64), lazy_rescale=BOTH),
        *points({**stays, "scheduler": "persistent", "heads_together": 1}, lazy_rescale=BOTH),
        *points(everywhere, heads_together=(1, 64), lazy_rescale=BOTH),
        *points({**three, **STAYS}, stages=(2, 3, 4), turns=BOTH),
        *points({**stays, **ALL}, stages=(2, 3, 4), heads_together=(1, 64)),
        *points({**three, "epilogue": "direct"}, stages=(3, 4), heads_together=(8, 64)),
    ]


def outputs_medium() -> list[Row]:
    pair = {**PAIR, "loader": "self", "masks_apart": False, "tile_n": 128}
    eight = {**pair, "heads_together": 8}
    return [
        *points(pair, heads_together=(1, 8, 16), lazy_rescale=BOTH, epilogue=ENDS),
        *points(eight, tile_n=(112, 144), lazy_rescale=BOTH, epilogue=ENDS),
        *points({**eight, "stages": 3}, tile_n=(64, 80, 96, 112)),
        *points({**eight, "loader": "producer", "stages": 3}, tile_n=(64, 80, 96)),
    ]


LONG: Plan = {
    "B=4,H=16,S_q=4096,D=64": small_heads,
    "B=1,H=16,S_q=16384,D=64": small_heads,
    "B=4,H=16,S_q=4096,D=64" + CAUSAL: small_heads_causal,
    "B=1,H=16,S_q=16384,D=64" + CAUSAL: small_heads_causal,
    "B=2,H=8,S_q=2048,D=64" + CAUSAL: small_heads_causal,
    "B=4,H=16,S_q=4096,D=128": large_heads,
    "B=1,H=16,S_q=16384,D=128": large_heads,
    "B=4,H=16,S_q=4096,D=128" + CAUSAL: large_heads_causal,
    "B=1,H=16,S_q=16384,D=128" + CAUSAL: large_heads_causal,
    "B=1,H=32,H_kv=8,S_q=1024,D=128" + CAUSAL: large_heads_causal,
    "B=1,H=32,H_kv=8,S_q=2560,D=128" + CAUSAL: large_heads_causal,
    "B=1,H=32,H_kv=8,S_q=1000,D=64" + CAUSAL: small_heads_causal,
    "B=1,H=32,H_kv=8,S_q=2560,D=64" + CAUSAL: small_heads_causal,
    "B=1,H=32,H_kv=8,S_q=1536,D=64" + CAUSAL: causal_walks,
    "B=1,H=32,H_kv=8,S_q=1536,D=128" + CAUSAL: causal_walks,
    "B=1,H=32,H_kv=8,S_q=3072,D=128" + CAUSAL: causal_walks,
    "B=139,H=12,S_q=40,D=64": many_short,
    "B=139,H=12,S_q=64,D=64": many_short,
    "B=33,H=16,S_q=128,D=64": many_short,
    "B=200,H=12,S_q=200,D=64": many_short,
}

MEDIUM: Plan = {
    "B=4,H=16,S_q=600,D=128": medium_heads,
    "B=8,H=12,S_q=500,D=128": medium_heads,
    "B=2,H=16,S_q=900,D=128": medium_heads,
    "B=8,H=16,S_q=600,D=64": medium_small_heads,
    "B=16,H=12,S_q=256,D=64": medium_small_heads,
    "B=32,H=12,S_q=200,D=64": medium_small_heads,
    "B=2,H=16,S_q=1100,D=64": medium_small_heads,
}

SUMS: Plan = {
    "B=2,H=8,S_q=2048,D=64": sums_medium,
    "B=8,H=16,S_q=577,D=64": sums_encoder,
    "B=4,H=16,S_q=4096,D=64": sums_long,
    "B=1,H=16,S_q=16384,D=64": sums_long,
    "B=4,H=16,S_q=4096,D=64" + CAUSAL: sums_causal,
    "B=1,H=16,S_q=16384,D=64" + CAUSAL: sums_causal,
    "B=2,H=8,S_q=2048,D=64" + CAUSAL: sums_causal,
    "B=1,H=32,H_kv=8,S_q=1000,D=64" + CAUSAL: sums_prefill,
    "B=1,H=32,H_kv=8,S_q=2048,D=64" + CAUSAL: sums_prefill,
}


OUTPUTS: Plan = {
    "B=4,H=16,S_q=4096,D=128" + CAUSAL: outputs_large_heads_causal,
    "B=1,H=16,S_q=16384,D=128" + CAUSAL: outputs_large_heads_causal,
    "B=4,H=16,S_q=4096,D=128": outputs_large_heads,
    "B=1,H=16,S_q=16384,D=128": outputs_large_heads,
    "B=1,H=32,H_kv=8,S_q=1024,D=128" + CAUSAL: outputs_prefill,
    "B=1,H=32,H_kv=8,S_q=2560,D=128" + CAUSAL: outputs_prefill,
    "B=2,H=8,S_q=2048,D=64": outputs_medium,
    "B=4,H=16,S_q=4096,D=64": outputs_small_heads,
    "B=1,H=16,S_q=16384,D=64": outputs_small_heads,
    "B=1,H=16,S_q=16384,D=64" + CAUSAL: outputs_small_heads,
    "B=4,H=16,S_q=4096,D=64" + CAUSAL: outputs_small_heads,
    "B=1,H=32,H_kv=8,S_q=2560,D=64" + CAUSAL: outputs_small_heads,
}

PLANS = {"long": LONG, "medium": MEDIUM, "sums": SUMS, "outputs": OUTPUTS}
