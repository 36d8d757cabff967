"""How many evaluations does each strategy need, without presets or history?

    python -m bench.speed.search_quality [--save] [--space FILE ...] [--seeds 6] [--evaluations 200]
        [--strategy NAME ...] [--kernel-tuner FILE ...] [--write-spaces SPACES.json]

Every strategy searches every recording and every given space (a T4 file or Kernel Tuner cache) from
nothing. Nothing is compiled: outcomes come from the space. Told are the median evaluations, with
quartiles, to 10, 5 and 1 % above the best time, and the score P: how much of random search's
distance from the best a strategy saves, over the evaluations from where random search is half way
from the median to the best to where it is 95 % of the way (Willemsen et al., "A Methodology for
Comparing Auto-Tuning Optimization Algorithms", FGCS 2024, in evaluations instead of seconds). 0 is
random search, 1 the best from the start. `--kernel-tuner` adds what
`bench.speed.search_quality_kernel_tuner` wrote.
"""

from __future__ import annotations

import json
import math
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from bench.command_line import add_save, script_parser
from bench.environment import publish
from bench.results import Row
from bench.speed.search_quality_spaces import MeasuredSpace, measured_spaces
from greenfast.search.strategies import STRATEGIES, Infeasible, Objective

TEMPLATE = "recorded"
SHARES = (1.10, 1.05, 1.01)
START, CUTOFF = 0.5, 0.95  # of the way from the median to the best, by random search

Curve = list[list[float]]  # [evaluation, time] wherever the best time improved
Search = tuple[MeasuredSpace, str, int, int]


def searched(search: Search) -> Row:
    """One cold search."""
    measured, strategy_name, seed, evaluations = search
    best, curve = math.inf, []
    strategy = STRATEGIES[strategy_name]("recorded", {TEMPLATE: measured.searched()}, [], seed)
    goal = float(measured.times.min())
    for number in range(1, evaluations + 1):
        proposal = strategy.ask()
        if proposal is None:
            break
        time = measured.time_of[proposal.candidate.parameters]
        if time < best:
            best = time
            curve.append([number, time])
        if best <= goal:
            break
        right = math.isfinite(time)
        strategy.tell(proposal, Objective(math.log(time)) if right else Infeasible())
    return {
        "space": measured.name,
        "strategy": strategy_name,
        "seed": seed,
        "evaluations": evaluations,
        "curve": curve,
    }


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


def score(space: MeasuredSpace, curves: list[Curve], evaluations: int) -> float | None:
    """P: the mean over the evaluations between the two points of random search."""
    valid = space.times[np.isfinite(space.times)]
    goal, median = float(valid.min()), float(np.median(valid))
    baseline = random_best(space.times, evaluations)
    start, end = (
        int(np.argmax(baseline <= goal + (median - goal) * (1 - share)))
        if (baseline <= goal + (median - goal) * (1 - share)).any()
        else evaluations - 1
        for share in (START, CUTOFF)
    )
    if end <= start:
        return None
    mean = np.mean([best_after(each, evaluations, float(valid.max())) for each in curves], axis=0)
    part = slice(start, end + 1)
    return float(np.mean((baseline[part] - mean[part]) / (baseline[part] - goal)))


def summary(space: MeasuredSpace, strategy: str, rows: list[Row], evaluations: int) -> Row:
    """The figures of one strategy on one space."""
    best = float(space.times.min())
    curves = [row["curve"] for row in rows]
    line: Row = {"space": space.name, "strategy": strategy, "searches": len(rows)}
    for share in SHARES:
        counts = [evaluations_to(curve, best * share) for curve in curves]
        quartiles = np.quantile(counts, (0.25, 0.5, 0.75), method="inverted_cdf")
        known = [None if math.isinf(count) else float(count) for count in quartiles]
        line[f"to_{round(share * 100 - 100)}_percent"] = known
    reached = min(evaluations, *(int(row["budget"]) for row in rows)) if rows else 0
    p = score(space, curves, reached)
    line |= {"budget": reached, "score": None if p is None else round(p, 3)}
    return line


def other_rows(paths: list[Path]) -> tuple[list[Row], str]:
    """The searches of Kernel Tuner's strategies, and its version."""
    rows: list[Row] = []
    version = ""
    for path in paths:
        content: Any = json.loads(path.read_text())
        version = content["kernel_tuner"]
        rows += [
            {**row, "strategy": f"kernel_tuner {row['strategy']}", "budget": content["budget"]}
            for row in content["rows"]
            if not row.get("failure")
        ]
    return rows, version


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    parser.add_argument("--space", type=Path, action="append", default=[], metavar="FILE")
    parser.add_argument("--strategy", action="append", choices=sorted(STRATEGIES))
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--kernel-tuner", type=Path, action="append", default=[], metavar="FILE")
    parser.add_argument("--write-spaces", type=Path, metavar="SPACES.json")
    options = parser.parse_args()
    spaces = measured_spaces(options.space)
    if options.write_spaces is not None:
        options.write_spaces.write_text(json.dumps([space.as_json() for space in spaces]))
        return
    searches = [
        (space, strategy, seed, options.evaluations)
        for strategy in options.strategy or sorted(STRATEGIES)
        for space in spaces
        for seed in range(options.seeds)
    ]
    with ProcessPoolExecutor(options.cores) as pool:
        rows = list(pool.map(searched, searches, chunksize=options.seeds))
    rows = [{**row, "budget": options.evaluations} for row in rows]
    others, version = other_rows(options.kernel_tuner)
    lines = []
    for space in spaces:
        of_space = [row for row in (*rows, *others) if row["space"] == space.name]
        for strategy in dict.fromkeys(row["strategy"] for row in of_space):
            same = [row for row in of_space if row["strategy"] == strategy]
            lines.append(summary(space, strategy, same, options.evaluations))
    publish(
        "search_quality",
        [{"what": "kernel_tuner", "version": version}, *lines] if version else lines,
        save=options.save,
    )


if __name__ == "__main__":
    main()
