"""The parameters that a search's times depend on.

An additive model is fitted to the logarithm of the times of the correct, timed trials of each
template: one term for each value of each parameter, held back by a small penalty (ridge). A
parameter's share is the variance of its terms over the trials, relative to the variance of all
terms. Terms are fitted together, so that a parameter is not credited with what others, which the
strategy chose along with it, explain. How well the model predicts trials that it was not fitted to
(5 folds) stands beside the shares: where it predicts nothing, they mean nothing.

Strategies do not sample evenly, and interactions are not modelled: the shares describe these
trials, and are no law of the kernel.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from greenfast.app.views.compare_schemas import (
    ImportanceOut,
    ImportancesOut,
    TemplateImportancesOut,
    ValueOut,
)
from greenfast.app.views.values import in_order
from greenfast.db.rows import TrialRow
from greenfast.search.verdict import CORRECT

if TYPE_CHECKING:
    from greenfast.db.store import Store

FEWEST_TRIALS = 10
PENALTY = 1.0  # as if one more trial had shown no effect of a value
FOLDS = 5
LARGEST_PAGE = 500
MOST_TRIALS = 5_000  # the newest
METHOD = (
    "of the variance of log time in an additive model of all parameters (ridge), fitted to the "
    "correct trials that have a time"
)


@dataclass(frozen=True)
class Shares:
    """The result of a fit: each varied parameter's share, and the predicted share of variance."""

    by_name: dict[str, float]
    explained: float | None


def importances(
    store: Store, search_id: str, recorded: Sequence[TrialRow] | None = None
) -> ImportancesOut:
    """The importances of a search's parameters, by template.

    `recorded`: the search's trials, the newest first, where the caller has read them.
    """
    search = store.search(search_id)
    trials = newest(store, search_id, MOST_TRIALS) if recorded is None else recorded[:MOST_TRIALS]
    templates = sorted({trial.template for trial in trials})
    return ImportancesOut(
        search_id=search_id,
        time_kind=search.time_kind,
        method=METHOD,
        templates=[
            _of_template(name, [trial for trial in trials if trial.template == name])
            for name in templates
        ],
    )


def newest(store: Store, search_id: str, most: int) -> list[TrialRow]:
    """At most `most` of the newest recorded trials."""
    trials: list[TrialRow] = []
    cursor = None
    while len(trials) < most:
        page = store.trials(search_id, descending=True, limit=LARGEST_PAGE, cursor=cursor)
        trials += [trial for trial in page.items if trial.verdict is not None]
        cursor = page.next_cursor
        if cursor is None:
            break
    return trials[:most]


def _of_template(name: str, trials: Sequence[TrialRow]) -> TemplateImportancesOut:
    timed = [trial for trial in trials if trial.verdict in CORRECT and trial.time_median_us]
    shares = fit(
        [trial.parameters for trial in timed],
        [math.log(trial.time_median_us) for trial in timed if trial.time_median_us],
    )
    parameters = [
        ImportanceOut(
            name=parameter,
            share=shares.by_name.get(parameter) if shares else None,
            values=_values(parameter, trials),
        )
        for parameter in dict.fromkeys(name for trial in trials for name in trial.parameters)
    ]
    return TemplateImportancesOut(
        template=name,
        trials=len(trials),
        timed=len(timed),
        explained=shares.explained if shares else None,
        sentence=_sentence(len(timed), shares, len({trial.time_median_us for trial in timed})),
        parameters=sorted(parameters, key=lambda each: -(each.share or -1.0)),
    )


def _sentence(timed: int, shares: Shares | None, times: int) -> str:
    if shares is None:
        return (
            f"{timed} correct trial{'' if timed == 1 else 's'} with a time "
            f"{'is' if timed == 1 else 'are'} too few to tell what matters; "
            f"{FEWEST_TRIALS} are needed."
        )
    if times == 1:
        return f"All {timed} trials have the same time, so no parameter matters."
    if not shares.by_name:
        return "No parameter had two values among the timed trials."
    if shares.explained is None or shares.explained <= 0:
        return (
            f"Over {timed} trials the parameters, taken one by one, do not predict the time of "
            "trials that the model has not seen. The shares may be chance."
        )
    return (
        f"Over {timed} trials the parameters, taken one by one, predict "
        f"{shares.explained:.0%} of the variance of trials that the model has not seen."
    )


def fit(points: Sequence[dict[str, Any]], logs: Sequence[float]) -> Shares | None:
    """The shares; None for too few trials."""
    if len(points) < FEWEST_TRIALS:
        return None
    names = list(dict.fromkeys(name for point in points for name in point))
    columns: list[np.ndarray] = []
    owners: list[str] = []
    for name in names:
        values = list(dict.fromkeys(_key(point.get(name)) for point in points))
        if len(values) < 2:
            continue
        for value in values:
            columns.append(np.array([_key(point.get(name)) == value for point in points], float))
            owners.append(name)
    target = np.array(logs)
    if not columns or float(target.var()) < 1e-18:
        return Shares({}, None)
    design = np.stack(columns, axis=1)
    weights = _ridge(design, target)
    centred = design - design.mean(axis=0)
    variances = {
        name: float((centred[:, mine] @ weights[mine]).var())
        for name in dict.fromkeys(owners)
        for mine in [np.array([owner == name for owner in owners])]
    }
    total = sum(variances.values())
    by_name = {name: variance / total if total else 0.0 for name, variance in variances.items()}
    return Shares(by_name, _explained(design, target))


def _key(value: Any) -> tuple[str, Any]:
    """True and 1 are different values."""
    return type(value).__name__, value


def _ridge(design: np.ndarray, target: np.ndarray) -> np.ndarray:
    centred = design - design.mean(axis=0)
    gram = centred.T @ centred + PENALTY * np.eye(design.shape[1])
    return np.asarray(np.linalg.solve(gram, centred.T @ (target - target.mean())))


def _explained(design: np.ndarray, target: np.ndarray) -> float | None:
    """The share of the variance that is predicted across folds, 0 at least."""
    order = np.random.default_rng(0).permutation(len(target))
    error = 0.0
    for fold in range(FOLDS):
        out = order[fold::FOLDS]
        rest = np.setdiff1d(order, out)
        weights = _ridge(design[rest], target[rest])
        predicted = target[rest].mean() + (design[out] - design[rest].mean(axis=0)) @ weights
        error += float(((target[out] - predicted) ** 2).sum())
    whole = float(((target - target.mean()) ** 2).sum())
    return max(0.0, 1 - error / whole)


def _values(parameter: str, trials: Sequence[TrialRow]) -> list[ValueOut]:
    groups: dict[tuple[str, Any], list[TrialRow]] = {}
    for trial in trials:
        if parameter in trial.parameters:
            groups.setdefault(_key(trial.parameters[parameter]), []).append(trial)
    by_value = {key[1]: group for key, group in groups.items()}
    result = []
    for value in in_order(list(by_value)):
        group = by_value[value]
        correct = [trial for trial in group if trial.verdict in CORRECT]
        times = [trial.time_median_us for trial in correct if trial.time_median_us]
        result.append(
            ValueOut(
                value=value,
                trials=len(group),
                correct=len(correct),
                best_us=min(times, default=None),
                median_us=statistics.median(times) if times else None,
            )
        )
    return result
