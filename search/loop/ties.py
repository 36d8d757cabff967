"""Ties: candidates that a timing cannot tell apart, so that picking another of them is no finding.

Two medians are compared with the blocks' intervals of both and with the scatter between processes,
which acts on both. One process resolves about 3.5 %, three about 2 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from greenfast.search.timing import (
    CONFIDENCE,
    PROCESS_FREEDOM,
    PROCESS_SIGMA,
    Interval,
    student,
)


def tie_half_width(first: Interval, second: Interval, processes: int = 1) -> float:
    """How far the medians of two candidates may lie apart and still be a tie, as a log ratio."""
    blocks = math.hypot(first.high - first.low, second.high - second.low) / 2
    scatter = student((1 - CONFIDENCE) / 2, PROCESS_FREEDOM) * PROCESS_SIGMA
    return math.hypot(blocks, scatter * math.sqrt(2 / processes))


def is_tie(first: Interval, second: Interval, processes: int = 1) -> bool:
    """Whether nothing shows which of two is faster, each timed against the same baseline."""
    return abs(first.median - second.median) <= tie_half_width(first, second, processes)


def pick(intervals: Mapping[str, Interval]) -> str:
    """The fastest by its median; the first by name among equals."""
    return min(sorted(intervals), key=lambda name: intervals[name].median)


def tied_with_pick(intervals: Mapping[str, Interval], processes: int = 1) -> tuple[str, ...]:
    """The picked candidate first, then those that tie with it, the fastest first."""
    best = pick(intervals)
    others = [
        name
        for name in sorted(intervals, key=lambda name: (intervals[name].median, name))
        if name != best and is_tie(intervals[best], intervals[name], processes)
    ]
    return (best, *others)
