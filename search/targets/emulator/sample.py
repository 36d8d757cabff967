"""The blocks that a counted run executes, and how many blocks of the launch each represents.

The blocks of a launch may differ: a causal tile near the start of the diagonal sees few keys, the
last tile of an odd length is partial, and the template decides which axis of the grid counts tiles.
So every axis is cut into as many strata as there are samples. The first coordinate of the axis
represents the first stratum, the last coordinate the last one, and the middle all others. A
lattice combines the strata of the axes, so that no axis follows another.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

Index3 = tuple[int, int, int]

SAMPLED_BLOCKS = 16  # of a launch, counted for the modelled time
FEWEST_CLUSTERS = 3  # first, middle, last


@dataclass(frozen=True)
class SampledCluster:
    """A cluster of the grid, numbered with x fastest; without clusters, a block."""

    number: int
    weight: float  # the clusters of the launch that it represents; the sum is all of them


def sampled_clusters(grid: Index3, cluster: Index3, most_blocks: int) -> tuple[SampledCluster, ...]:
    """About `most_blocks` blocks in whole clusters, or all where there are no more."""
    sizes = (grid[0] // cluster[0], grid[1] // cluster[1], grid[2] // cluster[2])
    whole = math.prod(sizes)
    count = max(FEWEST_CLUSTERS, most_blocks // math.prod(cluster))
    if whole <= count:
        return tuple(SampledCluster(number, 1.0) for number in range(whole))
    axes = [_coordinates(size, count) for size in sizes]
    points = [(axes[0][x], axes[1][y], axes[2][z]) for x, y, z in _lattice(count)]
    shares = _shares(points, sizes)
    weights: dict[int, float] = defaultdict(float)
    for (x, y, z), share in zip(points, shares, strict=True):  # in small grids points may coincide
        weights[(z * sizes[1] + y) * sizes[0] + x] += whole * share
    return tuple(SampledCluster(number, weight) for number, weight in sorted(weights.items()))


def _coordinates(size: int, count: int) -> list[int]:
    """One coordinate per stratum, symmetric about the axis' middle.

    Their mean is then exact for a cost that grows linearly.
    """
    half = [_representative(level, size, count) for level in range(count // 2)]
    middle = [(size - 1) // 2] if count % 2 else []
    return half + middle + [size - 1 - coordinate for coordinate in reversed(half)]


def _representative(level: int, size: int, count: int) -> int:
    first, behind = level * size // count, (level + 1) * size // count
    return (first + max(first + 1, behind)) // 2 if level else 0


def _lattice(count: int) -> list[Index3]:
    """The stratum of each sample on each axis, as a lattice (Korobov, 1959).

    It contains every stratum of each axis, and both corners.
    """
    cycle = count - 1
    step = _generator(cycle)
    points = [(level, level * step % cycle, level * step * step % cycle) for level in range(cycle)]
    return [*points, (cycle, cycle, cycle)]


def _generator(cycle: int) -> int:
    """A step that visits all strata, as near to the golden ratio as possible.

    Its square gives a third direction, where one exists.
    """
    steps = [step for step in range(1, cycle + 1) if math.gcd(step, cycle) == 1]
    return min(
        steps, key=lambda step: (step * step % cycle in (1, cycle - 1), abs(step - 0.618 * cycle))
    )


def _shares(points: Sequence[Index3], sizes: Index3) -> list[float]:
    """Each point's share of the launch.

    On a short axis some coordinates occur more often than others; the shares even that out.
    """
    shares = [1.0] * len(points)
    for axis, size in enumerate(sizes):
        occurrences = Counter(point[axis] for point in points)
        if size == len(occurrences):  # every coordinate is sampled, and all are equally large
            shares = [
                share / occurrences[point[axis]]
                for point, share in zip(points, shares, strict=True)
            ]
    total = sum(shares)
    return [share / total for share in shares]
