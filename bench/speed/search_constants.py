"""Would other constants of `evolution` be as good on a space that had no part in choosing them?

    python -m bench.speed.search_constants SEARCHES.jsonl [--space FILE ...] [--seeds 20]
        [--evaluations 120] [--save]

Each constant is changed alone. For each space, the value is chosen that needs the fewest
evaluations to 5 % of the optimum on all other spaces (the geometric mean, a search that does not
get there counts as its budget), and judged on the space that was left out. `kept` are the
evaluations with the constants as they are. A line `changed` compares a value with the kept one,
search by search, on all spaces.

Searches are appended to SEARCHES.jsonl as they end, and a second run does those that are missing.
The seeds are not those of `search_quality`.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import numpy as np

from bench.environment import publish
from bench.results import Row
from bench.speed.search_quality import completed, searched, searches_parser
from bench.speed.search_quality_figures import evaluations_to, mean_ratio
from bench.speed.search_quality_spaces import MeasuredSpace, measured_spaces
from greenfast.search.strategies import evolution, ranker
from greenfast.search.strategies.features import Encoding

Change = tuple[ModuleType, str, object]  # a module's constant and its value
CHANGES: dict[str, dict[str, tuple[Change, ...]]] = {
    "first points": {
        "4": ((evolution, "FIRST_POINTS", 4),),
        "6": ((evolution, "FIRST_POINTS", 6),),
        "12": ((evolution, "FIRST_POINTS", 12),),
    },
    "prior of lengths": {
        "0.5, 0.5": ((ranker, "LENGTH_PRIOR", (0.5, 0.5)),),
        "0.5, 1": ((ranker, "LENGTH_PRIOR", (0.5, 1.0)),),
        "1, 1": ((ranker, "LENGTH_PRIOR", (1.0, 1.0)),),
    },
    "far from": {
        "1": ((evolution, "FAR_FROM", 1),),
        "20": ((evolution, "FAR_FROM", 20),),
    },
    "children": {"64": ((evolution, "CHILDREN", 64),)},
    "pool": {"512": ((evolution, "POOL", 512),)},
    "features": {"values alone": ((evolution, "Features", Encoding),)},
}
KEPT = "kept"
FIRST_SEED = 1000
GOAL = 1.05
Job = tuple[str, str, int, int]  # setting, space, seed, budget

_spaces: dict[str, MeasuredSpace] = {}


def settings() -> dict[str, tuple[str, tuple[Change, ...]]]:
    """Name of each changed setting -> what it changes."""
    return {
        f"{constant}: {name}": (constant, changes)
        for constant, values in CHANGES.items()
        for name, changes in values.items()
    }


def run(job: Job) -> Row:
    setting, space, seed, budget = job
    _, changes = settings().get(setting, ("", ()))
    with ExitStack() as changed:
        for module, name, value in changes:
            changed.enter_context(patch.object(module, name, value))
        row = searched(_spaces[space], "evolution", FIRST_SEED + seed, budget)
    return {**row, "seed": seed, "setting": setting}


def needed(rows: list[Row], budget: int) -> float:
    """The logarithm of the mean evaluations to the goal."""
    logs = [
        math.log(min(budget, evaluations_to(row["curve"], _best(row["space"]) * GOAL)))
        for row in rows
    ]
    return float(np.mean(logs))


def _best(space: str) -> float:
    return float(_spaces[space].times.min())


def left_out(rows: list[Row], budget: int) -> list[Row]:
    """For each constant and space: the value chosen without the space, and what it needs there."""
    cost = {
        (setting, space): needed(
            [row for row in rows if (row["setting"], row["space"]) == (setting, space)], budget
        )
        for setting in (KEPT, *settings())
        for space in _spaces
    }
    lines = []
    for constant in CHANGES:
        rivals = [KEPT, *(name for name, (changed, _) in settings().items() if changed == constant)]
        for space in _spaces:
            others = [other for other in _spaces if other != space]
            chosen = min(
                rivals, key=lambda rival: np.mean([cost[rival, other] for other in others])
            )
            lines.append(
                {
                    "what": "left_out",
                    "constant": constant,
                    "space": space,
                    "chosen": chosen,
                    "needs": round(math.exp(cost[chosen, space]), 1),
                    "kept": round(math.exp(cost[KEPT, space]), 1),
                }
            )
    return lines


def compared(rows: list[Row], budget: int) -> list[Row]:
    """For each change: evaluations to the goal over those with the constants as they are."""
    logs = {(row["setting"], row["space"], row["seed"]): needed([row], budget) for row in rows}
    dice, lines = np.random.default_rng(0), []
    for setting in settings():
        ratios = np.array(
            [
                log - logs[KEPT, space, seed]
                for (changed, space, seed), log in logs.items()
                if changed == setting
            ]
        )
        lines.append({"what": "changed", "setting": setting, **mean_ratio(ratios, dice)})
    return lines


def _key(row: Row) -> Job:
    return row["setting"], row["space"], row["seed"], row["budget"]


def main() -> None:
    parser = searches_parser(__doc__, 120)
    parser.add_argument("--space", type=Path, action="append", default=[], metavar="FILE")
    options = parser.parse_args()
    _spaces.update({space.name: space for space in measured_spaces(options.space)})
    jobs = [
        (setting, space, seed, options.evaluations)
        for seed in range(options.seeds)
        for setting in (KEPT, *settings())
        for space in _spaces
    ]
    rows = [
        row
        for row in completed(options, jobs, run, _key).values()
        if row["budget"] == options.evaluations and row["seed"] < options.seeds
    ]
    setting: Row = {
        "what": "setting",
        "seeds": options.seeds,
        "evaluations": options.evaluations,
    }
    lines = [*compared(rows, options.evaluations), *left_out(rows, options.evaluations)]
    publish("search_constants", [setting, *lines], save=options.save)


if __name__ == "__main__":
    main()
