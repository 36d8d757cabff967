"""The candidates that a tuning's bundle would hold are judged before the search ends.

A candidate that is slower on average can be the fastest on one workload. The search rejected it as
slower and judged no more of it, so its safety is judged here, and its outputs on a new seed.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace

from greenfast.search.dispatch.cover import smallest_cover
from greenfast.search.dispatch.times import is_correct, measured_trials
from greenfast.search.errors import UsageError
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.loop.confirmation import Settle, prepared
from greenfast.search.loop.evaluate import EvaluationContext, settled
from greenfast.search.oracle.cases import LARGEST_SEED
from greenfast.search.verdict import Failed, GateResult, Skipped, Stage, Trial, gate_result

MOST_JUDGED = 64  # candidates; an album of wrong ones must not take for ever


def judge_served(
    context: EvaluationContext, trials: Iterable[Trial], share: float, settle: Settle
) -> None:
    """Judge the smallest set that serves the workloads, until every kernel of the set has passed.

    `settle` is called with each later result. A candidate that fails leaves room for others.
    """
    known = {trial.number: trial for trial in trials if is_correct(trial.verdict)}
    judged: set[int] = set()
    while not context.stop.is_set():
        numbers = [
            number
            for number in _selected(context, list(known.values()), share)
            if number not in judged
        ]
        if not numbers or len(judged) >= MOST_JUDGED:
            return
        for number in numbers:
            judged.add(number)
            for result in _results(context, known[number]):
                settle(number, result)
                known[number] = replace(
                    known[number], verdict=settled(known[number].verdict, result)
                )
            if not is_correct(known[number].verdict):
                del known[number]


def _selected(context: EvaluationContext, trials: Sequence[Trial], share: float) -> tuple[int, ...]:
    names = [workload.name for workload in context.workloads]
    measured = measured_trials(trials, names)
    try:
        cover = smallest_cover(measured, [context.weights.get(name, 1.0) for name in names], share)
    except UsageError:  # nothing is correct
        return ()
    return tuple(int(measured[at].name) for at in cover.kernels)


def _results(context: EvaluationContext, trial: Trial) -> list[GateResult]:
    """The outputs on a new seed, then the safety where it was not judged yet."""
    seeded = replace(context, seed=secrets.randbelow(LARGEST_SEED), siblings=None)
    subject = prepared(seeded, trial.candidate, trial.source_digest)
    results: list[GateResult] = [CorrectnessGate().judge(subject)]
    if isinstance(results[0], Failed):
        return results
    if isinstance(gate_result(trial.verdict, Stage.SAFETY), Skipped):
        results.append(SafetyGate().judge(prepared(context, trial.candidate, trial.source_digest)))
    return results
