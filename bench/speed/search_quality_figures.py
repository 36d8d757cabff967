"""The figures of searches on complete spaces: evaluations to a goal, score P, and their intervals.

Score P is how much of random search's distance from the best a strategy saves, over the evaluations
from where random search is half way from the median to the best to where it is 95 % of the way, or
to the end of the budget (Willemsen et al., "A Methodology for Comparing Auto-Tuning Optimization
Algorithms", FGCS 2024, in evaluations instead of seconds). 0 is random search, 1 the best from the
start.

Intervals cover 95 % and come from a bootstrap over the searches (Efron and Tibshirani, "An
Introduction to the Bootstrap", 1993).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bench.results import Row
from bench.speed.search_quality_spaces import MeasuredSpace

SHARES = (1.10, 1.05, 1.01)
START, CUTOFF = 0.5, 0.95  # of the way from the median to the best, by random search
RESAMPLES = 1000
LEVELS = (0.025, 0.975)
WAYPOINTS = (5, 10, 15, 20, 30, 40, 60, 80, 100, 150, 200)  # evaluations in the plot of the ways
OTHERS = "kernel_tuner "  # the prefix of Kernel Tuner's strategies

Curve = Sequence[Sequence[float]]  # [evaluation, time] wherever the best time improved


def evaluations_to(curve: Curve, time: float) -> float:
    """How many evaluations it took to reach a time; infinite for a search that did not."""
    return next((number for number, reached in curve if reached <= time), math.inf)


def best_after(curve: Curve, evaluations: int, before: float) -> np.ndarray:
    """[evaluations]: the best time after each; `before` the first valid one."""
    best = np.full(evaluations, before)
    for number, time in curve:
        best[int(number) - 1 :] = time
    return best


def random_best(times: np.ndarray, evaluations: int) -> np.ndarray:
    """[evaluations]: the expected best of so many different random points.

    A set of failed ones counts as the worst valid time.
    """
    valid = np.isfinite(times)
    ordered = np.sort(np.where(valid, times, times[valid].max()))
    total = len(ordered)
    evaluations = min(evaluations, total)
    expected = np.empty(evaluations)
    left = np.arange(total, 0, -1, dtype=float)  # points that are not faster than each
    log_chance = np.zeros(total)  # that all points so far are among the slowest `left`
    for number in range(evaluations):
        with np.errstate(divide="ignore"):
            log_chance += np.log(np.maximum(left - number, 0)) - math.log(total - number)
        expected[number] = ordered[0] + (np.exp(log_chance)[1:] * np.diff(ordered)).sum()
    return expected


def gains(space: MeasuredSpace, curves: Sequence[Curve], evaluations: int) -> np.ndarray:
    """[searches]: each one's part of the score, whose mean is P; NaN where P is undefined."""
    valid = space.times[np.isfinite(space.times)]
    goal, median = float(valid.min()), float(np.median(valid))
    baseline = random_best(space.times, evaluations)
    start, end = (
        int(np.argmax(baseline <= goal + (median - goal) * (1 - share)))
        if (baseline <= goal + (median - goal) * (1 - share)).any()
        else len(baseline) - 1
        for share in (START, CUTOFF)
    )
    if end <= start:
        return np.full(len(curves), math.nan)
    part = slice(start, end + 1)
    best = np.array([best_after(each, len(baseline), float(valid.max())) for each in curves])
    saved: np.ndarray = ((baseline - best)[:, part] / (baseline - goal)[part]).mean(axis=1)
    return saved


def interval(
    values: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], dice: np.random.Generator
) -> tuple[float, float]:
    """Of a statistic of [resamples, values] along the last axis."""
    drawn = values[dice.integers(0, len(values), (RESAMPLES, len(values)))]
    low, high = np.quantile(statistic(drawn), LEVELS, method="inverted_cdf")
    return float(low), float(high)


def mean_ratio(logs: np.ndarray, dice: np.random.Generator) -> Row:
    """The geometric mean of ratios, given their logarithms, and its interval."""
    low, high = interval(logs, lambda drawn: np.asarray(drawn.mean(axis=-1)), dice)
    ends = [round(math.exp(end), 2) for end in (low, high)]
    return {"ratio": round(math.exp(float(logs.mean())), 2), "interval": ends}


def summary(space: MeasuredSpace, strategy: str, rows: Sequence[Row], evaluations: int) -> Row:
    """The figures of one strategy on one space."""
    dice = np.random.default_rng(0)
    best = float(space.times.min())
    curves = [row["curve"] for row in rows]
    line: Row = {
        "what": "line",
        "space": space.name,
        "strategy": strategy,
        "searches": len(rows),
        "budget": evaluations,
    }
    for share in SHARES:
        counts = np.array([evaluations_to(curve, best * share) for curve in curves])
        quartiles = np.quantile(counts, (0.25, 0.5, 0.75), method="inverted_cdf")
        name = f"to_{round(share * 100 - 100)}_percent"
        line[name] = [_count(count) for count in quartiles]
        line[f"{name}_interval"] = [_count(end) for end in interval(counts, _median, dice)]
    saved = gains(space, curves, evaluations)
    line["score"] = _score(float(saved.mean()))
    line["score_interval"] = [_score(end) for end in interval(saved, _mean, dice)]
    return line


def overall(
    spaces: Mapping[str, MeasuredSpace], strategy: str, rows: Sequence[Row], evaluations: int
) -> Row:
    """A strategy's mean score over the spaces, and how far above the best it is on the way."""
    dice = np.random.default_rng(0)
    curves = {name: [row["curve"] for row in rows if row["space"] == name] for name in spaces}
    saved = [gains(space, curves[name], evaluations) for name, space in spaces.items()]
    defined = [each for each in saved if not np.isnan(each).any()]
    drawn = np.mean(
        [
            each[dice.integers(0, len(each), (RESAMPLES, len(each)))].mean(axis=1)
            for each in defined
        ],
        axis=0,
    )
    ends = np.quantile(drawn, LEVELS)
    way = []
    for evaluation in (each for each in WAYPOINTS if each <= evaluations):
        excess = [_excess(space, curves[name], evaluation) for name, space in spaces.items()]
        means = np.mean(
            [
                each[dice.integers(0, len(each), (RESAMPLES, len(each)))].mean(axis=1)
                for each in excess
            ],
            axis=0,
        )
        low, high = np.quantile(means, LEVELS)
        middle = float(np.mean([each.mean() for each in excess]))
        way.append([evaluation, *(round(math.exp(value), 4) for value in (middle, low, high))])
    return {
        "what": "strategy",
        "strategy": strategy,
        "score": _score(float(np.mean([each.mean() for each in defined]))),
        "score_interval": [_score(float(end)) for end in ends],
        "way": way,  # [evaluations, geometric mean of best time / best of the space, its interval]
    }


def _excess(space: MeasuredSpace, curves: Sequence[Curve], evaluation: int) -> np.ndarray:
    """[searches]: the logarithm of the best time so far over the best of the space."""
    valid = space.times[np.isfinite(space.times)]
    before = float(np.quantile(valid, 0.95))
    best = np.array([best_after(curve, evaluation, before)[-1] for curve in curves])
    excess: np.ndarray = np.log(best / valid.min())
    return excess


def _median(drawn: np.ndarray) -> np.ndarray:
    middles: np.ndarray = np.quantile(drawn, 0.5, axis=-1, method="inverted_cdf")
    return middles


def _mean(drawn: np.ndarray) -> np.ndarray:
    means: np.ndarray = drawn.mean(axis=-1)
    return means


def _count(count: float) -> int | None:
    return None if math.isinf(count) else int(count)


def _score(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)
