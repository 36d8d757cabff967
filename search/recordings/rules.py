"""Stored times judged again, by the performance gate's rule."""

from __future__ import annotations

from statistics import median

from greenfast.search.acceptance import Acceptance, accept
from greenfast.search.recordings.contents import Times
from greenfast.search.recordings.file import rounded
from greenfast.search.verdict import TimeKind, Timing


def time_us(times: Times) -> float:
    """The median of the samples, with the digits that they have."""
    return rounded(median(times.samples))


def recorded_acceptance(times: tuple[Times, ...], min_gain: float) -> Acceptance:
    """The judgement on the samples of all workloads, one or more."""
    return accept(tuple(map(_timing, times)), min_gain)


def _timing(times: Times) -> Timing:
    return Timing(
        "",
        time_us(times),
        TimeKind.MEASURED,
        "",
        (("floor_us", times.floor_us),),
        samples=times.samples,
        baseline_samples=times.baseline_samples,
    )
