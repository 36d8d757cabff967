"""Sizes between measured workloads, with the times that they probably take.

A program's next size is seldom one that was measured. The rules are learned from sizes in between,
too, so that a limit lies where the times of two kernels meet, and so that of several limits that
fit the measured workloads the one is taken that also holds around them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from greenfast.search.dispatch.learn import Shape
from greenfast.search.dispatch.rules import Sizes
from greenfast.search.dispatch.waves import Waves

NEIGHBOURS = 3  # of a workload, to which the sizes between are taken
STEPS = (0.25, 0.5, 0.75)  # on the way to a neighbour, on a logarithmic scale


def between(shapes: Sequence[Shape], waves: Mapping[str, Waves]) -> tuple[Shape, ...]:
    """Shapes on the way from each workload to its neighbours; together they weigh as much as all.

    Without its waves (by kernel, where known), a kernel's time is interpolated; those of the size
    are then added.
    """
    pairs = _neighbours(shapes)
    known = {tuple(shape.sizes.values()) for shape in shapes}
    even = [_without_waves(shape, waves) for shape in shapes]
    found = []
    for one, other in pairs:
        weight = (shapes[one].weight + shapes[other].weight) / 2
        for step in STEPS:
            sizes = _on_the_way(shapes[one].sizes, shapes[other].sizes, step)
            if tuple(sizes.values()) in known:
                continue
            excess = {
                name: (1 - step) * even[one][name]
                + step * even[other][name]
                + (waves[name].cost(sizes) if name in waves else 0.0)
                for name in even[one]
            }
            least = min(excess.values())
            times = {name: math.exp(value - least) for name, value in excess.items()}
            found.append((sizes, weight, times))
    whole = math.fsum(shape.weight for shape in shapes)
    part = math.fsum(weight for _, weight, _ in found)
    return tuple(
        Shape(sizes, weight / part * whole, times, 1.0, measured=False)
        for sizes, weight, times in found
    )


def _neighbours(shapes: Sequence[Shape]) -> list[tuple[int, int]]:
    """Pairs of workloads, at least one of which is among the nearest to the other."""
    places = np.array(
        [[math.log2(max(size, 1)) for size in each.sizes.values()] for each in shapes]
    )
    apart = np.abs(places[:, None] - places[None]).sum(axis=-1)
    np.fill_diagonal(apart, np.inf)
    nearest = np.argsort(apart, axis=1, kind="stable")[:, : min(NEIGHBOURS, len(shapes) - 1)]
    return sorted(
        {
            (min(at, int(other)), max(at, int(other)))
            for at, row in enumerate(nearest)
            for other in row
        }
    )


def _without_waves(shape: Shape, waves: Mapping[str, Waves]) -> dict[str, float]:
    """Each kernel's time over the best one's, as a logarithm, without the cost of its waves."""
    return {
        name: math.log(time / shape.best_us)
        - (waves[name].cost(shape.sizes) if name in waves else 0.0)
        for name, time in shape.times_us.items()
    }


def _on_the_way(one: Sizes, other: Sizes, step: float) -> dict[str, int]:
    return {
        name: size
        if size == other[name]
        else round(max(size, 1) ** (1 - step) * max(other[name], 1) ** step)
        for name, size in one.items()
    }
