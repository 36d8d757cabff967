"""Times from several GPUs of one model, or from several searches, made comparable.

Two GPUs of one model differ by a few percent, and so may two days. The baseline is timed in turns
with every candidate, so a time moves from one GPU to another by the ratio of the baseline's times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from greenfast.search.timing import median
from greenfast.search.verdict import Timing


def as_beside(
    baseline: Sequence[Timing] | None, timings: Sequence[Timing], *, of_another_search: bool = False
) -> tuple[Timing, ...]:
    """The timings as the GPU would have measured them that timed the baseline's own trial.

    This search's timings of that GPU stay as they are, and so do those without times of the
    baseline.
    """
    known = {timing.workload: timing for timing in baseline or ()}
    return tuple(
        _moved(timing, known.get(timing.workload), of_another_search) for timing in timings
    )


def _moved(timing: Timing, baseline: Timing | None, of_another_search: bool) -> Timing:
    if baseline is None or not timing.baseline_samples:
        return timing
    is_elsewhere = timing.device_index not in (None, baseline.device_index)
    if not (is_elsewhere or of_another_search):
        return timing
    beside = median(timing.baseline_samples)
    if not beside > 0:
        return timing
    moved_us = timing.time_median_us * baseline.time_median_us / beside
    return replace(timing, time_median_us=moved_us)
