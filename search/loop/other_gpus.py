"""Times from several GPUs of one model, made comparable.

Two GPUs of one model differ by a few percent. Each times the baseline in turns with every
candidate, so a time moves from one GPU to another by the ratio of the baseline's times there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from greenfast.search.timing import median
from greenfast.search.verdict import Timing


def as_beside(baseline: Sequence[Timing] | None, timings: Sequence[Timing]) -> tuple[Timing, ...]:
    """The timings as the GPU would have measured them that timed the baseline's own trial.

    Timings of that GPU stay as they are, and so do those without times of the baseline.
    """
    known = {timing.workload: timing for timing in baseline or ()}
    return tuple(_moved(timing, known.get(timing.workload)) for timing in timings)


def _moved(timing: Timing, baseline: Timing | None) -> Timing:
    if baseline is None or not timing.baseline_samples:
        return timing
    if timing.device_index is None or timing.device_index == baseline.device_index:
        return timing
    beside = median(timing.baseline_samples)
    if not beside > 0:
        return timing
    moved_us = timing.time_median_us * baseline.time_median_us / beside
    return replace(timing, time_median_us=moved_us)
