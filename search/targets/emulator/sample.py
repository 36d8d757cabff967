"""Which blocks a counted run executes, and how many blocks of the launch each of them stands for.

Blocks of one launch may differ: a causal tile near the diagonal's start sees few keys, the last tile of an odd length
is partial, and which axis of the grid counts tiles is the template's choice. So every axis is cut into as many strata
as there are samples. The first stratum is represented by the axis' first coordinate, the last by its last, and the
others by their middle; a lattice pairs the strata of the axes, so that no axis moves with another one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

Index3 = tuple[int, int, int]

FEWEST_CLUSTERS = 3  # first, middle, last


@dataclass(frozen=True)
class SampledCluster:
    """A cluster of the grid (x fastest); without clusters, a block."""

    number: int
    weight: float  # clusters of the launch that it stands for; together they are all


def sampled_clusters(grid: Index3, cluster: Index3, most_blocks: int) -> tuple[SampledCluster, ...]:
    """About `most_blocks` blocks in whole clusters, all of them where there are no more."""
    sizes = tuple(blocks // size for blocks, size in zip(grid, cluster))
    whole = math.prod(sizes)
    count = max(FEWEST_CLUSTERS, most_blocks // math.prod(cluster))
    if whole <= count:
        return tuple(SampledCluster(number, 1.0) for number in range(whole))
    axes = [_coordinates(size, count) for size in sizes]
    points = [tuple(axis[level] for axis, level in zip(axes, levels)) for levels in _lattice(count)]
    shares = _shares(points, sizes)
    weights: Counter[int] = Counter()
    for (x, y, z), share in zip(points, shares):  # points of small grids may coincide
        weights[(z * sizes[1] + y) * sizes[0] + x] += whole * share
    return tuple(SampledCluster(*both) for both in sorted(weights.items()))


def _coordinates(size: int, count: int) -> list[int]:
    """One coordinate a stratum, symmetric about the axis' middle: a cost that rises evenly has its exact mean."""
    half = [_representative(level, size, count) for level in range(count // 2)]
    middle = [(size - 1) // 2] if count % 2 else []
    return half + middle + [size - 1 - one for one in reversed(half)]


def _representative(level: int, size: int, count: int) -> int:
    first, behind = level * size // count, (level + 1) * size // count
    return (first + max(first + 1, behind)) // 2 if level else 0


def _lattice(count: int) -> list[Index3]:
    """For each sample its stratum on each axis. All strata of an axis are met, and both corners (Korobov, 1959)."""
    cycle = count - 1
    step = _generator(cycle)
    return [(one, one * step % cycle, one * step * step % cycle) for one in range(cycle)] + [
        (cycle,) * 3
    ]


def _generator(cycle: int) -> int:
    """A step that visits all strata, nearest to the golden ratio; its square is a third direction where there is such."""
    steps = [one for one in range(1, cycle + 1) if math.gcd(one, cycle) == 1]
    return min(
        steps, key=lambda step: (step * step % cycle in (1, cycle - 1), abs(step - 0.618 * cycle))
    )


def _shares(points: Sequence[Index3], sizes: Index3) -> list[float]:
    """Of the launch, by point: short axes' coordinates are met unequally often, and are evened out."""
    shares = [1.0] * len(points)
    for axis, size in enumerate(sizes):
        met = Counter(point[axis] for point in points)
        if size == len(met):  # each coordinate is there, and each is as large as the others
            shares = [share / met[point[axis]] for point, share in zip(points, shares)]
    total = sum(shares)
    return [share / total for share in shares]
