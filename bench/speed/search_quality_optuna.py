"""Optuna's samplers without help, as a script of one's own would use them.

Numbers are integers over the positions of their values, others are categories. A point that the
space does not have is told as infeasible by a constraint and costs nothing. A point that was
evaluated before is told again and costs nothing. A search ends after ten questions for each
evaluation of its budget.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from bench.results import Row
from bench.speed.search_quality_spaces import MeasuredSpace
from greenfast.search.kernels.spec import Parameter

QUESTIONS = 10  # for each evaluation
WORST = 10.0  # e^10 times the median: worse than any valid point
INVALID = "invalid"


def _violation(trial: optuna.trial.FrozenTrial) -> tuple[float]:
    return (float(trial.user_attrs.get(INVALID, 0.0)),)


def _tpe(seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.TPESampler(seed=seed, constraints_func=_violation)


def _nsga2(seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.NSGAIISampler(seed=seed, constraints_func=_violation)


SAMPLERS: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "optuna TPESampler": _tpe,
    "optuna NSGAIISampler": _nsga2,
}


def sampled(measured: MeasuredSpace, name: str, seed: int, evaluations: int) -> Row:
    """One cold search of a plain sampler."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna.create_study(sampler=SAMPLERS[name](seed))
        return _searched(study, measured, name, seed, evaluations)


def _searched(
    study: optuna.Study, measured: MeasuredSpace, name: str, seed: int, evaluations: int
) -> Row:
    valid = measured.times[[math.isfinite(time) for time in measured.times.tolist()]]
    scale, goal = math.log(sorted(valid.tolist())[len(valid) // 2]), float(valid.min())
    distributions = {each.name: _distribution(each) for each in measured.parameters}
    known: set[tuple[object, ...]] = set()
    best, curve, questions, started = math.inf, [], 0, time.process_time()
    while len(known) < evaluations and questions < QUESTIONS * evaluations and best > goal:
        questions += 1
        trial = study.ask(distributions)
        point = tuple(
            (
                each.name,
                each.values[trial.params[each.name]]
                if each.type == "int"
                else trial.params[each.name],
            )
            for each in measured.parameters
        )
        figure = measured.time_of.get(point)
        if figure is not None and point not in known:
            known.add(point)
            if figure < best:
                best = figure
                curve.append([len(known), figure])
        right = figure is not None and math.isfinite(figure)
        trial.set_user_attr(INVALID, 0.0 if right else 1.0)
        study.tell(trial, math.log(figure) - scale if right and figure is not None else WORST)
    return {
        "space": measured.name,
        "strategy": name,
        "seed": seed,
        "budget": evaluations,
        "evaluated": len(known),
        "curve": curve,
        "ask_ms": round((time.process_time() - started) * 1e3 / max(1, questions), 2),
    }


def _distribution(parameter: Parameter) -> BaseDistribution:
    if parameter.type == "int":
        return IntDistribution(0, len(parameter.values) - 1)
    return CategoricalDistribution(parameter.values)
