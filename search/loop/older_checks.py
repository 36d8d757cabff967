"""Correct trials of a resumed search that an earlier version of the checks judged.

The best of a search must have passed today's checks, so its older trials are judged again when it
ends: the fastest first, until one of them is correct. A failure is stored, and never reversed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from greenfast.search.acceptance import time_us_of
from greenfast.search.errors import Fault
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.loop.evaluate import EvaluationContext, prepare
from greenfast.search.targets.base import Answering
from greenfast.search.verdict import (
    Failed,
    GateResult,
    Reason,
    Rejected,
    Stage,
    Trial,
    performance_of,
)


def failures_today(
    context: EvaluationContext, trials: Iterable[Trial]
) -> tuple[tuple[int, GateResult], ...]:
    """The number and the failed gate of each of these correct trials that fails today.

    Nothing is learnt from a fault of ours: the trial keeps its verdict.
    """
    if isinstance(context.target, Answering):
        return ()
    failures: list[tuple[int, GateResult]] = []
    for trial in sorted(trials, key=_time_us):
        if context.stop.is_set():
            break
        try:
            failed = _failure(context, trial)
        except Fault:
            continue
        if failed is None:
            break
        failures.append((trial.number, failed))
    return tuple(failures)


def _failure(context: EvaluationContext, trial: Trial) -> GateResult | None:
    subject = prepare(trial.candidate, context)
    if isinstance(subject, Rejected):
        sentence = f"refused by today's checks: {subject.sentence}"
        return Failed(Stage.CORRECTNESS, sentence, Reason(subject.reason))
    for gate in (CorrectnessGate(), SafetyGate()):
        if isinstance(result := gate.judge(subject), Failed):
            return result
    return None


def _time_us(trial: Trial) -> float:
    evidence = performance_of(trial.verdict)
    return time_us_of(evidence.timings) if evidence and evidence.timings else math.inf
