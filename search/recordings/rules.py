"""What stored times say: the performance gate's rule as a pure function of samples. Anybody can compute it again."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from greenfast.search.acceptance import REASONS, WORDS, measured_decision
from greenfast.search.recordings.contents import Times
from greenfast.search.recordings.file import rounded
from greenfast.search.timing import LOOKS, Decision
from greenfast.search.verdict import Reason, TimeKind, Timing


@dataclass(frozen=True)
class Standing:
    """A timed row against the recorded baseline. `reason` is None for a candidate that is faster by `min_gain`, and for
    the baseline itself, which has no ratio."""

    reason: Reason | None
    ratio: float | None  # of times, over all workloads; below 1 is faster
    interval: tuple[float, float] | None
    words: str


def time_us(times: Times) -> float:
    """The median of the samples, with the digits that they have."""
    return rounded(median(times.samples))


def standing(times: tuple[Times, ...], min_gain: float) -> Standing:
    """What the samples of all workloads say; needs at least one workload."""
    if any(time_us(timing) < timing.floor_us for timing in times):
        return Standing(
            Reason.IMPLAUSIBLE, None, None, "less than its compulsory work takes at the peaks"
        )
    if not all(timing.baseline_samples for timing in times):
        return Standing(None, None, None, "the baseline, which the others are compared with")
    decision, interval = measured_decision(
        tuple(
            Timing(
                "",
                time_us(timing),
                TimeKind.MEASURED,
                "",
                samples=timing.samples,
                baseline_samples=timing.baseline_samples,
            )
            for timing in times
        )
    )
    low, ratio, high = interval.ratios
    blocks = min(len(timing.samples) // 2 for timing in times)
    if blocks < LOOKS[0]:  # let go before there was an interval
        words = f"{WORDS[decision]}: {ratio:.4f} of its time in {blocks} blocks, too few for an interval"
        return Standing(REASONS.get(decision), ratio, None, words)
    reason, words = REASONS.get(decision), WORDS[decision]
    if decision is Decision.FASTER and ratio > 1 - min_gain:
        reason, words = Reason.SAME, f"faster by less than {min_gain:.1%}"
    return Standing(
        reason, ratio, (low, high), f"{words}: {ratio:.4f} of its time [{low:.4f}, {high:.4f}]"
    )
