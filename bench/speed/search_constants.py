"""Would other constants of `evolution` be as good on a space that had no part in choosing them?

    python -m bench.speed.search_constants SEARCHES.jsonl [--space FILE ...] [--seeds 4]
        [--evaluations 80] [--save]

Each constant is changed alone. For each space, the value is chosen that needs the fewest
evaluations to 5 % of the optimum on all other spaces (the geometric mean, a search that does not
get there counts as its budget), and judged on the space that was left out. `kept` are the
evaluations with the constants as they are. Searches are appended to SEARCHES.jsonl as they end, and
a second run does those that are missing.
"""

from __future__ import annotations

import json
import math
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from bench.command_line import add_save, script_parser
from bench.environment import publish
from bench.results import Row
from bench.speed.search_quality import searched, stored
from bench.speed.search_quality_figures import evaluations_to
from bench.speed.search_quality_spaces import MeasuredSpace, measured_spaces
from greenfast.search.strategies import evolution
from greenfast.search.strategies.features import Encoding, Features

CHANGES: dict[str, tuple[object, ...]] = {
    "FIRST_POINTS": (5, 12),
    "FAR_FROM": (1, 20),
    "CHILDREN": (64,),
    "POOL": (512,),
    "Features": (Encoding,),  # without products and factors of two
}
KEPT = "kept"
GOAL = 1.05
Job = tuple[str, str, int, int]  # setting, space, seed, budget

_spaces: dict[str, MeasuredSpace] = {}


def settings() -> dict[str, tuple[str, object]]:
    """Name of each changed setting -> constant and value."""
    return {
        f"{name}={getattr(value, '__name__', value)}": (name, value)
        for name, values in CHANGES.items()
        for value in values
    }


def run(job: Job) -> Row:
    setting, space, seed, budget = job
    name, value = settings().get(setting, ("Features", Features))
    before = getattr(evolution, name)
    setattr(evolution, name, value)
    try:
        return {**searched(_spaces[space], "evolution", seed, budget), "setting": setting}
    finally:
        setattr(evolution, name, before)


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


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    parser.add_argument("searches", type=Path, metavar="SEARCHES.jsonl")
    parser.add_argument("--space", type=Path, action="append", default=[], metavar="FILE")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--evaluations", type=int, default=80)
    parser.add_argument("--cores", type=int, default=2)
    options = parser.parse_args()
    _spaces.update({space.name: space for space in measured_spaces(options.space)})
    jobs = [
        (setting, space, seed, options.evaluations)
        for seed in range(options.seeds)
        for setting in (KEPT, *settings())
        for space in _spaces
    ]
    done = {
        (row["setting"], row["space"], row["seed"], row["budget"])
        for row in stored(options.searches)
    }
    with ProcessPoolExecutor(options.cores) as pool, options.searches.open("a") as file:
        for row in pool.map(run, [job for job in jobs if job not in done]):
            file.write(json.dumps(row) + "\n")
            file.flush()
    rows = [
        row
        for row in stored(options.searches)
        if row["budget"] == options.evaluations and row["seed"] < options.seeds
    ]
    setting: Row = {
        "what": "setting",
        "seeds": options.seeds,
        "evaluations": options.evaluations,
    }
    publish("search_constants", [setting, *left_out(rows, options.evaluations)], save=options.save)


if __name__ == "__main__":
    main()
