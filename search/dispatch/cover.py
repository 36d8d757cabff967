"""The smallest set of kernels that is fast on every workload: a set cover.

A kernel covers a workload when its time there is at most `1 + share` times the best time of any
kernel. Small instances are solved exactly, by trying all sets of 1, 2, ... kernels. Larger ones
are solved greedily; the greedy set has at most `bound` times as many kernels as the smallest one.

Source of the bound: Chvatal, A greedy heuristic for the set-covering problem, 1979: the harmonic
number of the largest number of workloads that a kernel covers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from greenfast.search.errors import UsageError

LARGEST_SEARCH = 200_000  # sets that the exact method tries


@dataclass(frozen=True)
class Measured:
    """A correct kernel and its time on each workload, in us; inf where it has none."""

    name: str
    times_us: tuple[float, ...]


@dataclass(frozen=True)
class Cover:
    kernels: tuple[int, ...]  # positions among the measured kernels, ascending
    method: str  # "exact" | "greedy"
    bound: float  # the set is at most this factor larger than the smallest one


def best_times(kernels: Sequence[Measured]) -> tuple[float, ...]:
    """The best time on each workload."""
    return tuple(min(times) for times in zip(*(kernel.times_us for kernel in kernels), strict=True))


def smallest_cover(
    kernels: Sequence[Measured],
    weights: Sequence[float],
    share: float,
    best: Sequence[float] | None = None,
) -> Cover:
    """The smallest covering set; of several, the one with the lowest weighted mean time.

    `best`: the times to be close to, where they are not the kernels' own. UsageError `no_kernel`
    when a workload has no time at all.
    """
    if not kernels or not all(map(math.isfinite, best_times(kernels))):
        raise UsageError(
            "no correct kernel was timed on every workload, so there is nothing to pick from",
            code="no_kernel",
            mend="give the search more trials",
        )
    best = best_times(kernels) if best is None else best
    masks = [_mask(kernel, best, share) for kernel in kernels]
    representatives = _representatives(kernels, masks, weights)
    everything = (1 << len(best)) - 1
    greedy = _greedy(representatives, masks, everything)
    exact = _exact(representatives, masks, everything, len(greedy), kernels, weights)
    if exact is not None:
        return Cover(tuple(sorted(exact)), "exact", 1.0)
    largest = max(mask.bit_count() for mask in masks)
    bound = sum(1 / size for size in range(1, largest + 1))
    return Cover(tuple(sorted(greedy)), "greedy", bound)


def weighted_log_time(times_us: Sequence[float], weights: Sequence[float]) -> float:
    """The weighted mean of the logarithms; inf where a time is missing."""
    if not all(map(math.isfinite, times_us)):
        return math.inf
    logs = (weight * math.log(time) for weight, time in zip(weights, times_us, strict=True))
    return math.fsum(logs) / math.fsum(weights)


def _mask(kernel: Measured, best: Sequence[float], share: float) -> int:
    return sum(
        1 << position
        for position, (time, least) in enumerate(zip(kernel.times_us, best, strict=True))
        if time <= least * (1 + share)
    )


def _representatives(
    kernels: Sequence[Measured], masks: Sequence[int], weights: Sequence[float]
) -> list[int]:
    """For each set of covered workloads that no other contains, its fastest kernel on average.

    Replacing a kernel by one that covers more leaves a cover a cover, so these suffice.
    """
    fastest: dict[int, int] = {}
    for position, mask in enumerate(masks):
        if not mask:
            continue
        known = fastest.get(mask)
        if known is None or _rank(kernels, weights, position) < _rank(kernels, weights, known):
            fastest[mask] = position
    maximal = [
        position
        for mask, position in fastest.items()
        if not any(mask != other and mask & other == mask for other in fastest)
    ]
    return sorted(maximal, key=lambda position: _rank(kernels, weights, position))


def _rank(
    kernels: Sequence[Measured], weights: Sequence[float], position: int
) -> tuple[float, float, int]:
    times = kernels[position].times_us
    mean = weighted_log_time(times, weights)
    partial = math.fsum(math.log(time) for time in times if math.isfinite(time))
    return mean, partial, position


def _greedy(representatives: Sequence[int], masks: Sequence[int], everything: int) -> list[int]:
    covered, picked = 0, []
    while covered != everything:
        position = max(
            representatives,
            key=lambda index: (
                (masks[index] & ~covered).bit_count(),
                -representatives.index(index),
            ),
        )
        picked.append(position)
        covered |= masks[position]
    return picked


def _exact(
    representatives: Sequence[int],
    masks: Sequence[int],
    everything: int,
    enough: int,
    kernels: Sequence[Measured],
    weights: Sequence[float],
) -> list[int] | None:
    """The best of the smallest covers, which has at most `enough` kernels; None: too many sets."""
    tried = 0
    for size in range(1, enough + 1):
        tried += math.comb(len(representatives), size)
        if tried > LARGEST_SEARCH:
            return None
        covers = [
            positions
            for positions in combinations(representatives, size)
            if _union(positions, masks) == everything
        ]
        if covers:
            return list(min((_time_of(cover, kernels, weights), cover) for cover in covers)[1])
    return None


def _union(positions: Sequence[int], masks: Sequence[int]) -> int:
    union = 0
    for position in positions:
        union |= masks[position]
    return union


def _time_of(
    positions: Sequence[int], kernels: Sequence[Measured], weights: Sequence[float]
) -> float:
    return weighted_log_time(best_times([kernels[position] for position in positions]), weights)
