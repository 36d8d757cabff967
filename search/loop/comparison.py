"""Comparisons of two programs in several fresh processes: confirmations and peers.

Within one process an interval of 0.3 % is usual, yet the same kernel differs by up to 1.6 % from
one process to the next on an H200 (bench/results/h200/gpu_target.json). So the process is the unit
of a published claim.
"""

from __future__ import annotations

from dataclasses import dataclass

from greenfast.search.verdict import Timing


@dataclass(frozen=True)
class ProcessTimes:
    """One fresh process on one secret seed; each timing holds the samples of both programs."""

    seed: int
    timings: tuple[Timing, ...]  # one per workload


@dataclass(frozen=True)
class Comparison:
    """One program against another. Ratios are time / the other's time: below 1 is faster."""

    against: str  # "baseline", "runner-up", or a peer's name
    other_trial: int | None  # None: not a trial of this search
    decision: str  # of greenfast.search.timing.Decision; a tie is "same" or "ambiguous"
    ratio: float
    ratio_low: float
    ratio_high: float
    processes: tuple[ProcessTimes, ...]


@dataclass(frozen=True)
class Confirmation:
    """The winner of a search, timed again against the baseline and the runner-up."""

    trial: int
    confirmed: bool  # faster than the baseline in fresh processes, and correct on the new seeds
    sentence: str
    comparisons: tuple[Comparison, ...]
    checks: tuple[tuple[str, str], ...] | None = (
        None  # name and digest of each check that it passed; None: not recorded
    )


@dataclass(frozen=True)
class Peer:
    """Another library's kernel on one workload, or why it was not compared."""

    name: str  # torch-flash, torch-cudnn, torch-efficient, flash-attention-4 ...
    version: str
    workload: str
    outcome: str  # "timed" | "wrong" | "not_comparable" | "unavailable"
    sentence: str
    time_median_us: float | None = None
    comparison: Comparison | None = None  # the winner against the peer, timed in turns
    why: str = ""  # it was not timed, without its name; earlier versions stored the sentence only
