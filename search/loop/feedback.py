"""The feedback of a trial to the strategy: an objective, infeasible, or nothing."""

from __future__ import annotations

import math
from dataclasses import replace

from greenfast.search.acceptance import weights_of
from greenfast.search.loop.behaviour import behaviour_of
from greenfast.search.loop.objectives import others_of
from greenfast.search.loop.plan import NO_BASELINE, SearchPlan
from greenfast.search.strategies.base import Infeasible, Objective, Told
from greenfast.search.timing import weighted_mean
from greenfast.search.verdict import (
    Accepted,
    Faulted,
    Green,
    Reason,
    Rejected,
    Stage,
    Trial,
    Verdict,
    performance_of,
)


def told_of(trial: Trial, plan: SearchPlan) -> Told | None:
    """The strategy's feedback on a trial.

    An objective for a correct candidate, infeasible for a wrong one, nothing for a fault.
    """
    match trial.verdict:
        case Faulted():
            return None
        case Accepted() | Green():
            is_baseline = trial.number == 0 and plan.baseline != NO_BASELINE
            if is_baseline and plan.cold:
                return None  # it may be a preset or a champion
            timed = Objective(0.0) if is_baseline else _objective(trial.verdict)
            return _with_others(timed, trial.verdict, plan)
        case Rejected(stage=Stage.PERFORMANCE, reason=reason) if reason is not Reason.IMPLAUSIBLE:
            timed = _objective(trial.verdict)
            return _with_others(timed, trial.verdict, plan) if timed else Infeasible()
    return Infeasible()


def _with_others(told: Objective | None, verdict: Verdict, plan: SearchPlan) -> Objective | None:
    """With the plan's other objectives; None if one is not known."""
    if told is None or len(plan.objectives) == 1:
        return told
    others = others_of(verdict, plan.objectives)
    return None if others is None else replace(told, others=others)


def _objective(verdict: Verdict) -> Objective | None:
    evidence = performance_of(verdict)
    if evidence is None:
        return None
    if evidence.ratio_to_baseline is not None:
        return Objective(math.log(evidence.ratio_to_baseline), behaviour_of(verdict))
    # No correct baseline: plain times.
    logs = [math.log(timing.time_median_us) for timing in evidence.timings]
    return Objective(weighted_mean(logs, weights_of(evidence.timings)), behaviour_of(verdict))
