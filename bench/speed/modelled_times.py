"""How many evaluations does `evolution` save by hearing modelled times of random points first?

    python -m bench.speed.modelled_times SEARCHES.jsonl [--seeds 40] [--evaluations 100] [--save]

Every recording with stored modelled times (bench.model.model_check and model_hopper) is searched
from nothing, without modelled times and with those of DEFAULT_MODELLED random points, which the
strategy hears before its first proposal. On a GPU they come while the first candidates compile.
Running the emulator is no evaluation. `ratio` compares two searches of a seed: the geometric mean
of evaluations with modelled times over those without, with a 95 % interval. A search that does not
get there counts as the budget.

Searches are appended to SEARCHES.jsonl as they end, and a second run does those that are missing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache

import numpy as np

from bench.environment import publish
from bench.results import Row, read_result
from bench.speed.search_quality import TEMPLATE, completed, searched, searches_parser
from bench.speed.search_quality_figures import evaluations_to, interval, mean_ratio
from bench.speed.search_quality_spaces import MeasuredSpace, recorded_space
from greenfast.search.recordings.shelf import find_recording, recording_names
from greenfast.search.strategies import DEFAULT_MODELLED
from greenfast.search.strategies.base import ModelledTime, Strategy

GOALS = {"5 %": 1.05, "1 %": 1.01}
FIRST_SEED = 4000
STRATEGY = "evolution"
Job = tuple[str, int, int, int]  # space, points that are modelled, seed, budget


@cache
def space_of(name: str) -> MeasuredSpace:
    return recorded_space(name)


@cache
def modelled_of(name: str) -> tuple[ModelledTime, ...]:
    """The points of a recording whose modelled times are stored."""
    recording = find_recording(name)
    sources = [
        row.source_digest for row in recording.rows if row.template == recording.heading.template
    ]
    points = dict(zip(sources, space_of(name).points, strict=True))
    (workload, *_) = recording.heading.workloads
    rows = [
        row
        for result in ("model_recorded", "model_hopper")
        for row in read_result(result)["rows"]
        if row.get("modelled_us")
        and row.get("recording", row.get("workload")) in (name, workload.name)
    ]
    return tuple(
        ModelledTime(TEMPLATE, points[row["source"]], math.log(row["modelled_us"]))
        for row in rows
        if row["source"] in points
    )


def run(job: Job) -> Row:
    name, count, seed, evaluations = job
    times = random.Random(seed).sample(modelled_of(name), min(count, len(modelled_of(name))))

    def hear(strategy: Strategy) -> None:
        strategy.hear_modelled(times)

    row = searched(space_of(name), STRATEGY, FIRST_SEED + seed, evaluations, prepare=hear)
    return {**row, "seed": seed, "modelled": count}


def _key(row: Row) -> Job:
    return row["space"], row["modelled"], row["seed"], row["budget"]


def _needed(row: Row, share: float) -> float:
    best = float(space_of(row["space"]).times.min()) * share
    return min(row["budget"], evaluations_to(row["curve"], best))


def _line(rows: Sequence[Row], names: Sequence[str]) -> Row:
    """Evaluations with and without, of one recording or of several."""
    known = {_key(row): row for row in rows if row["space"] in names}
    own = [row for row in known.values() if row["modelled"]]
    line: Row = {"what": "line", "spaces": list(names), "searches": len(own)}
    if len(names) == 1:
        line["points"] = min(DEFAULT_MODELLED, len(modelled_of(names[0])))
    for goal, share in GOALS.items():
        pairs = np.array(
            [
                (_needed(known[row["space"], 0, row["seed"], row["budget"]], share), own_count)
                for row in own
                for own_count in [_needed(row, share)]
            ]
        )
        figures: Row = mean_ratio(np.log(pairs[:, 1] / pairs[:, 0]), np.random.default_rng(0))
        for which, counts in zip(("without", "with"), pairs.T, strict=True):
            dice = np.random.default_rng(0)
            low, high = interval(counts, lambda drawn: np.asarray(np.median(drawn, axis=-1)), dice)
            figures[which] = {"median": float(np.median(counts)), "interval": [low, high]}
        line[goal] = figures
    return line


def main() -> None:
    parser = searches_parser(__doc__, 100)
    options = parser.parse_args()
    names = [name for name in recording_names() if modelled_of(name)]
    jobs = [
        (name, count, seed, options.evaluations)
        for seed in range(options.seeds)
        for name in names
        for count in (0, DEFAULT_MODELLED)
    ]
    rows = completed(options, jobs, run, _key)
    chosen = [rows[job] for job in jobs]
    setting: Row = {
        "what": "setting",
        "seeds": options.seeds,
        "evaluations": options.evaluations,
        "modelled": DEFAULT_MODELLED,
    }
    lines = [_line(chosen, spaces) for spaces in [*([name] for name in names), names]]
    publish("modelled_times", [setting, *lines], save=options.save)


if __name__ == "__main__":
    main()
