"""Shapes of attention on grids, to make a set from: each represents the cell around it.

The sixty shapes of runtime_shapes evaluate a set. Half of them are not tuned on, and are not points
of a grid: a point with the same sizes is moved down by a sixteenth.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, floor, log, sqrt

from bench.gpu.runtime_shapes import Shape, shapes
from bench.results import Row

OUTSIDE = 1.5  # how far a cell at the border goes beyond its point
MOST_FLOP = 0.6e12  # of a point
MOST_KEY_BYTES = 2 << 30  # K and V of a point, bf16
HEADS = 32  # of a batch entry, where there are so many
ROUND_LENGTHS = (1, 16, 64, 128)  # what drawn lengths are multiples of


Place = tuple[int, int, tuple[int, ...]]  # family, D, indices on the axes
Side = tuple[int, int]  # an axis, and a step on it


@dataclass(frozen=True)
class Family:
    """Points of one kind of call, on axes of B * H, S_q and S_kv."""

    kind: str
    widths: tuple[int, ...]
    mask: str
    ratio: int  # H / H_kv of the points
    ratios: tuple[int, int]  # that the points stand for: above, at most
    heads: tuple[int, ...]  # B * H
    queries: tuple[int, ...]  # empty: as many as keys
    keys: tuple[int, ...]
    uneven: bool = False  # for numbers of keys that are no multiple of ALIGNED alone


ALIGNED = 128  # libraries are fastest at its multiples
SELF = (64, 96, 128, 160, 197, 256, 320, 384, 448, 512, 640, 768, 1024, 1536, 2048, 4096)
SELF_128 = (64, 128, 197, 256, 320, 384, 448, 512, 640, 768, 1024, 1536, 2048, 4096)
UNEVEN = (100, 140, 197, 260, 400, 520, 580, 780, 1040, 1560, 2060, 4100)
UNEVEN_128 = (100, 197, 260, 400, 580, 780, 1040, 2060)
CAUSAL = (128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192)
CACHE = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
SHORT_CACHE = CACHE[:7]
CROSS = (77, 128, 256, 512, 1024, 1500, 2048, 4096, 8192)
CROSS_128 = (96, 256, 512, 1024, 2048, 4096, 8192)
BOTH, FEW = (64, 128), (8, 16, 32, 64, 128)
SHARED, ROWS = (32, 64, 128, 256, 512, 1024, 2048), (4, 16, 32, 64, 128, 256, 1024, 4096)
ROWS_128 = (16, 32, 64, 128, 256, 512, 1024)
SELDOM_WIDTHS = (80, 96, 256)  # elements of heads that fewer models have: coarser grids
SELF_SELDOM = (64, 128, 197, 256, 384, 512, 768, 1024, 2048, 4096)
UNEVEN_SELDOM = (100, 260, 400, 580, 1040)
CAUSAL_SELDOM = (128, 256, 512, 1024, 2048, 4096, 8192)
FEW_TO_MANY = (*FEW, 256)
MANY = (4, 8, 12, 16, 24, 32, 64, 96, 128, 192, 256, 384, 512)
TOP_LEFT = "causal_top_left"
FAMILIES = (
    Family("encoder", (64,), "none", 1, (0, 1), MANY, (), SELF),
    Family("encoder", (128,), "none", 1, (0, 1), (*FEW, 256), (), SELF_128),
    Family("decode", BOTH, "none", 4, (1, 4), SHARED, (1,), CACHE),
    Family("decode", (128,), "none", 8, (4, 8), SHARED[:6], (1,), CACHE),
    Family("decode", BOTH, "none", 1, (0, 1), (*FEW, 256, 512), (1,), SHORT_CACHE),
    Family("prefill", BOTH, TOP_LEFT, 4, (1, 8), (28, 32, 40, 64, 128, 256), (), CAUSAL),
    Family("prefill", BOTH, TOP_LEFT, 1, (0, 1), FEW, (), CAUSAL),
    Family("cross", (64,), "none", 1, (0, 1), FEW, ROWS, CROSS),
    Family("cross", (128,), "none", 1, (0, 1), (4, *FEW[:4]), ROWS_128, CROSS_128),
    # Behind the others: their cells hold where none of the others' kernels wins.
    Family("encoder", (64,), "none", 1, (0, 1), MANY, (), UNEVEN, uneven=True),
    Family("encoder", (128,), "none", 1, (0, 1), FEW, (), UNEVEN_128, uneven=True),
    Family("encoder", SELDOM_WIDTHS, "none", 1, (0, 1), FEW_TO_MANY, (), SELF_SELDOM),
    Family("prefill", SELDOM_WIDTHS, TOP_LEFT, 4, (1, 8), (16, 32, 64, 128), (), CAUSAL_SELDOM),
    Family("prefill", SELDOM_WIDTHS, TOP_LEFT, 1, (0, 1), FEW, (), CAUSAL_SELDOM),
    Family("decode", SELDOM_WIDTHS, "none", 4, (1, 4), SHARED[:6], (1,), CACHE[:8]),
    Family("decode", SELDOM_WIDTHS, "none", 8, (4, 8), SHARED[:6], (1,), CACHE[:8]),
    Family("decode", SELDOM_WIDTHS, "none", 1, (0, 1), FEW_TO_MANY, (1,), SHORT_CACHE),
    Family("cross", SELDOM_WIDTHS, "none", 1, (0, 1), FEW, (16, 64, 256, 1024), CROSS_128[1:]),
    Family("encoder", SELDOM_WIDTHS, "none", 1, (0, 1), FEW, (), UNEVEN_SELDOM, uneven=True),
)


@dataclass(frozen=True)
class Cell:
    """A point of a grid, its place on the axes, and the sizes that it represents."""

    shape: Shape
    family: int
    width: int
    place: tuple[int, ...]
    when: tuple[Row, ...]


def key(cell: Cell) -> Place:
    return cell.family, cell.width, cell.place


def place_of(row: Row) -> Place:
    """Of a measured shape: the cell of its family that its sizes lie in, or the nearest to it."""
    family, dims = FAMILIES[row["family"]], row["dims"]
    keys = _index(family.keys, dims["S_kv"])
    queries = _index(family.queries, dims["S_q"]) if family.queries else 0
    place = (_index(family.heads, dims["B"] * dims["H"]), queries, keys)
    return row["family"], dims["D"], place


def _index(axis: Sequence[int], size: int) -> int:
    """Of the part of an axis that the size lies in."""
    return sum(size > between(axis, at)[1] for at in range(len(axis) - 1))


def sides(place: Place) -> Iterator[tuple[Side, Place]]:
    """The places one step further on each axis."""
    family, width, at = place
    for axis, index in enumerate(at):
        for step in (-1, 1):
            yield (axis, step), (family, width, (*at[:axis], index + step, *at[axis + 1 :]))


def beside(place: Place) -> Iterator[Place]:
    return (other for _, other in sides(place))


def cells() -> list[Cell]:
    """Points of all families that are small enough to be measured quickly."""
    return [
        cell
        for number, family in enumerate(FAMILIES)
        for width in family.widths
        for cell in _cells(number, family, width)
        if _flop(cell.shape) <= MOST_FLOP and _key_bytes(cell.shape) <= MOST_KEY_BYTES
    ]


def _cells(number: int, family: Family, width: int) -> Iterator[Cell]:
    axes = [family.heads, family.queries or (0,), family.keys]
    for place in itertools.product(*(range(len(axis)) for axis in axes)):
        heads, queries, keys = (axis[at] for axis, at in zip(axes, place, strict=True))
        bounds = [between(axis, at) for axis, at in zip(axes, place, strict=True)]
        if not family.queries:
            bounds[1] = bounds[2]
        when = [
            {"value": name, "above": above, "at_most": at_most}
            for name, (above, at_most) in zip(("B * H", "S_q", "S_kv"), bounds, strict=True)
        ]
        above, at_most = family.ratios
        when.append({"value": "H // H_kv", "above": above, "at_most": at_most})
        if family.uneven:
            when.append({"value": f"S_kv % {ALIGNED}", "above": 0, "at_most": ALIGNED - 1})
        shape = apart(_shape(family, width, heads, queries or keys, keys))
        yield Cell(shape, number, width, place, tuple(when))


def between(axis: Sequence[int], at: int) -> tuple[int, int]:
    """From the middle to the point before, exclusive, to the middle to the next, on a log scale."""
    size = axis[at]
    if size == 1:
        return 0, 1
    below = sqrt(size * axis[at - 1]) if at else size / OUTSIDE
    above = sqrt(size * axis[at + 1]) if at + 1 < len(axis) else size * OUTSIDE
    return floor(below), floor(above)


def _shape(family: Family, width: int, heads: int, queries: int, keys: int) -> Shape:
    h = max(h for h in range(1, HEADS + 1) if heads % h == 0 and h % family.ratio == 0)
    name = f"{family.kind} {heads // h}x{h}/{h // family.ratio} {queries}x{keys} D{width}"
    return Shape(
        name, heads // h, h, h // family.ratio, queries, keys, width, family.mask, tuned=True
    )


def apart(shape: Shape) -> Shape:
    """The shape, or a neighbour of it where it is as large as one that is not tuned on."""
    if sizes(shape) not in {sizes(other) for other in shapes() if not other.tuned}:
        return shape
    keys = shape.S_kv - max(1, shape.S_kv // 16)
    queries = keys if shape.S_q == shape.S_kv else shape.S_q
    kind, heads, _, width = shape.name.split()
    name = f"{kind} {heads} {queries}x{keys} {width}"
    return Shape(name, shape.B, shape.H, shape.H_kv, queries, keys, shape.D, shape.mask, tuned=True)


def sizes(shape: Shape) -> tuple[object, ...]:
    ratio = shape.H // shape.H_kv
    return shape.B * shape.H, shape.S_q, shape.S_kv, shape.D, shape.mask, ratio


def _flop(shape: Shape) -> float:
    causal = 0.5 if shape.is_causal else 1.0
    return causal * 4.0 * shape.B * shape.H * shape.S_q * shape.S_kv * shape.D


def _key_bytes(shape: Shape) -> int:
    return 4 * shape.B * shape.H_kv * shape.S_kv * shape.D


# ---- shapes inside of cells ----


def drawn_shapes(count: int, seed: int) -> Iterator[tuple[Cell, Shape]]:
    """Shapes inside of random cells; none is as large as one that is not tuned on."""
    numbers, everywhere = random.Random(seed), cells()
    for _ in range(count):
        cell = numbers.choice(everywhere)
        shape = drawn(cell, numbers)
        if shape == apart(shape):
            yield cell, shape


def drawn(cell: Cell, numbers: random.Random) -> Shape:
    """A shape inside of the cell; the point itself where no count of heads fits."""
    bounds = {part["value"]: (part["above"], part["at_most"]) for part in cell.when}
    shape, step = cell.shape, numbers.choice(ROUND_LENGTHS)
    ratio = shape.H // shape.H_kv
    count = _multiple(_log_uniform(numbers, *bounds["B * H"]), ratio, *bounds["B * H"])
    if count % ratio:
        return shape
    h = max(h for h in range(1, HEADS + 1) if count % h == 0 and h % ratio == 0)
    keys = _multiple(_log_uniform(numbers, *bounds["S_kv"]), step, *bounds["S_kv"])
    if FAMILIES[cell.family].uneven and keys % ALIGNED == 0:
        return shape
    queries = keys
    if FAMILIES[cell.family].queries:
        queries = _multiple(_log_uniform(numbers, *bounds["S_q"]), step, *bounds["S_q"])
    sizes = {"B": count // h, "H": h, "H_kv": h // ratio, "S_q": queries, "S_kv": keys}
    name = f"between {count // h}x{h}/{h // ratio} {queries}x{keys} D{shape.D}"
    return replace(shape, name=name, **sizes)


def _log_uniform(numbers: random.Random, above: int, at_most: int) -> int:
    """Evenly on a log scale."""
    low, high = log(above + 1), log(at_most + 1)
    return min(at_most, int(exp(numbers.uniform(low, high))))


def _multiple(size: int, step: int, above: int, at_most: int) -> int:
    """A multiple of `step` close to the size, if one is inside of the bounds."""
    rounded = max(step, round(size / step) * step)
    return rounded if above < rounded <= at_most else size
