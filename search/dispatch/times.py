"""The times of a search's correct candidates on each of its workloads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from greenfast.search.dispatch.cover import Measured
from greenfast.search.timing import block_log_ratios, median
from greenfast.search.verdict import (
    COMPARED,
    Accepted,
    Failed,
    Green,
    Passed,
    Rejected,
    Skipped,
    Stage,
    Timing,
    Trial,
    Verdict,
    gate_result,
    performance_of,
)


def is_correct(verdict: Verdict) -> bool:
    """Whether nothing was found wrong.

    A candidate that was only not faster counts: it loses on average, and may win on one workload.
    """
    if isinstance(verdict, Rejected):
        correctness = gate_result(verdict, Stage.CORRECTNESS)
        safety = gate_result(verdict, Stage.SAFETY)
        return (
            verdict.stage is Stage.PERFORMANCE
            and verdict.reason in COMPARED
            and isinstance(correctness, Passed)
            and not isinstance(safety, Failed)
        )
    return isinstance(verdict, (Accepted, Green))


def is_servable(verdict: Verdict) -> bool:
    """Whether a bundle may hold it: correct, and its safety was judged or cannot be judged here."""
    safety = gate_result(verdict, Stage.SAFETY)
    return is_correct(verdict) and safety is not None and not isinstance(safety, (Skipped, Failed))


def measured_trials(trials: Iterable[Trial], workloads: Sequence[str]) -> tuple[Measured, ...]:
    """The correct trials by number, with a time for each workload.

    A measured time is stated by its ratio to the baseline, which was timed in turns with it, so
    that drifts of the GPU between two trials do not decide.
    """
    ordered = sorted(trials, key=lambda trial: trial.number)
    baseline_us = _baseline_us(ordered)
    measured = []
    for trial in ordered:
        evidence = performance_of(trial.verdict)
        if evidence is None or not is_correct(trial.verdict):
            continue
        times = {
            timing.workload: _time_us(timing, baseline_us.get(timing.workload))
            for timing in evidence.timings
        }
        if all(times.get(name, math.inf) < math.inf for name in workloads):
            measured.append(Measured(str(trial.number), tuple(times[name] for name in workloads)))
    return tuple(measured)


def _baseline_us(trials: Sequence[Trial]) -> dict[str, float]:
    first = next((trial for trial in trials if trial.number == 0), None)
    evidence = performance_of(first.verdict) if first is not None else None
    timings = evidence.timings if evidence is not None else ()
    return {timing.workload: timing.time_median_us for timing in timings}


def _time_us(timing: Timing, baseline_us: float | None) -> float:
    ratios = block_log_ratios(timing.samples, timing.baseline_samples)
    if not ratios or baseline_us is None:
        return timing.time_median_us
    return baseline_us * math.exp(median(ratios))
