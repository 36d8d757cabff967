"""The rule that accepts a measured time: a pure function of stored samples, so that anybody can compute it again."""

from __future__ import annotations

from greenfast.search.timing import Decision, Interval, block_log_ratios, combined, decide
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


def measured_decision(timings: tuple[Timing, ...]) -> tuple[Decision, Interval]:
    """The decision over all workloads, from their stored samples."""
    return decide(
        combined([block_log_ratios(timing.samples, timing.baseline_samples) for timing in timings])
    )
