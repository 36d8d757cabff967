"""The rule that accepts a measured time, and the sentences that report it.

The rule is a pure function of stored samples, so anybody can apply it again: the performance gate
to a new measurement, a recording to an old one, a confirmation to several processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from greenfast.search.timing import (
    FAR_FASTER,
    LOOKS,
    SCREEN_RATIO,
    Decision,
    Interval,
    across_processes,
    block_log_ratios,
    combined,
    decide,
    geometric_mean,
)
from greenfast.search.verdict import Reason, Timing

REASONS = {
    Decision.SLOWER: Reason.SLOWER,
    Decision.SAME: Reason.SAME,
    Decision.AMBIGUOUS: Reason.AMBIGUOUS,
    Decision.TOO_NOISY: Reason.TOO_NOISY,
}
WORDS = {
    Decision.FASTER: "faster than the baseline",
    Decision.SLOWER: "slower than the baseline",
    Decision.SAME: "as fast as the baseline",
    Decision.AMBIGUOUS: "neither faster nor slower for certain",
    Decision.TOO_NOISY: "too noisy to judge",
}


# Of a decision after few blocks: what each of them showed.
FEW_BLOCKS = {
    Decision.SLOWER: f"at least {SCREEN_RATIO:g}",
    Decision.FASTER: f"at most {FAR_FASTER:g}",
}


@dataclass(frozen=True)
class Acceptance:
    """The judgement on the times of one candidate over all workloads.

    `reason` is None for a candidate that is faster by `min_gain`, and where nothing was compared.
    """

    reason: Reason | None
    decision: Decision | None = None  # None: nothing was compared
    ratio: float | None = None  # time / baseline's time; below 1 is faster
    interval: tuple[float, float] | None = None  # of the ratio
    blocks: int = 0  # of the workload that has the fewest
    min_gain: float = 0.0  # required, as a share of the baseline's time
    impossible: Timing | None = None  # shorter than its workload's physical bound

    @property
    def has_confidence(self) -> bool:
        """Whether the blocks suffice for an interval; otherwise it is the range of the blocks."""
        return self.blocks >= LOOKS[0]


def accept(timings: tuple[Timing, ...], min_gain: float) -> Acceptance:
    """Judge measured times, one or more. An impossible time is refused before it is compared."""
    if (impossible := below_bound(timings)) is not None:
        return Acceptance(Reason.IMPLAUSIBLE, impossible=impossible)
    if not all(timing.baseline_samples for timing in timings):
        return Acceptance(None)
    decision, interval = measured_decision(timings)
    low, ratio, high = interval.ratios
    reason = REASONS.get(decision)
    if decision is Decision.FASTER and ratio > 1 - min_gain:
        reason = Reason.SAME
    blocks = min(len(timing.samples) // 2 for timing in timings)
    return Acceptance(reason, decision, ratio, (low, high), blocks, min_gain)


def accept_processes(processes: Iterable[tuple[Timing, ...]]) -> tuple[Decision, Interval]:
    """The decision over several fresh processes, each with the samples of all workloads."""
    return across_processes([measured_decision(timings)[1] for timings in processes])


def measured_decision(timings: tuple[Timing, ...]) -> tuple[Decision, Interval]:
    """The decision over all workloads of one process, from their stored samples."""
    rows = [block_log_ratios(timing.samples, timing.baseline_samples) for timing in timings]
    return decide(combined(rows, weights_of(timings)))


def acceptance_sentence(acceptance: Acceptance, device: str) -> str:
    """The judgement for people, without the times themselves. `device` is a GPU's title."""
    if acceptance.impossible is not None:
        timing = acceptance.impossible
        return (
            f"{timing.workload} took {timing.time_median_us:.3f} us; its compulsory work takes "
            f"{timing.bound_us:.3f} us at the peaks of {device}"
        )
    if acceptance.decision is None or acceptance.interval is None:
        return (
            "not compared: this is the baseline, which the others are compared with, or there is "
            "no correct baseline"
        )
    low, high = acceptance.interval
    ratio = f"{acceptance.ratio:.4f} of its time [{low:.4f}, {high:.4f}]"
    words = WORDS[acceptance.decision]
    if acceptance.decision is Decision.FASTER and acceptance.reason is not None:
        return f"{words}, but by less than the required {acceptance.min_gain:.1%}: {ratio}"
    if acceptance.decision in FEW_BLOCKS and not acceptance.has_confidence:
        return (
            f"{words}: {FEW_BLOCKS[acceptance.decision]} times its time in each of "
            f"{acceptance.blocks} blocks, too few for an interval: {acceptance.ratio:.4f} of its "
            "time"
        )
    return f"{words}: {ratio}"


def below_bound(timings: tuple[Timing, ...]) -> Timing | None:
    """The first time that no device of this kind can reach."""
    return next((timing for timing in timings if timing.is_below_bound), None)


def ratio_of_medians(timings: Sequence[Timing], others: Sequence[Timing]) -> float:
    """Weighted geometric mean over the workloads of time / other time.

    Below 1: `timings` are shorter.
    """
    other_us = {timing.workload: timing.time_median_us for timing in others}
    ratios = (timing.time_median_us / other_us[timing.workload] for timing in timings)
    return geometric_mean(ratios, weights_of(timings))


def time_us_of(timings: Sequence[Timing]) -> float:
    """Geometric mean over the workloads, each counted by its weight."""
    return geometric_mean((timing.time_median_us for timing in timings), weights_of(timings))


def weights_of(timings: Iterable[Timing]) -> tuple[float, ...]:
    return tuple(timing.weight for timing in timings)
