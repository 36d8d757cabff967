"""How many evaluations does `evolution` need where the store knows other shapes or GPUs?

    python -m bench.speed.search_transfer SEARCHES.jsonl [--space FILE ...] [--seeds 20]
        [--evaluations 120] [--known 200] [--save]

Spaces of the same parameters are a family: the recordings of one template, and given spaces (T4
files or Kernel Tuner caches) whose parameters and values are equal. Each space is searched from
nothing (`cold`); with the best point of each neighbour first (`best`), which is how a warm search
began before there was a prior; and with their outcomes, too (`outcomes`). The neighbours are one
other space of the family, or up to four. What is known of a neighbour is a cold search of it, with
`--known` evaluations, of which as many outcomes are kept as a plan freezes. There are five such
searches of each space. Nothing is compiled: outcomes come from the space.

`ratio` compares two ways search by search: the geometric mean of the evaluations with outcomes over
those with the best points alone, with a 95 % interval. A search that does not get there counts as
the budget. Searches are appended to SEARCHES.jsonl, and a second run does those that are missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from bench.environment import publish
from bench.results import Row
from bench.speed.search_quality import TEMPLATE, completed, searched, searches_parser
from bench.speed.search_quality_figures import evaluations_to, interval, mean_ratio
from bench.speed.search_quality_spaces import MeasuredSpace, file_space, recorded_family
from greenfast.db.neighbours import MOST, OUTCOMES
from greenfast.db.trials import spread
from greenfast.search.kernels.workloads import Items
from greenfast.search.recordings.shelf import find_recording, recording_names
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.strategies import STRATEGIES
from greenfast.search.strategies.base import Infeasible, Objective, Options
from greenfast.search.strategies.prior import History

STRATEGY = "evolution"
GOALS = {"5 %": 1.05, "1 %": 1.01}
HISTORIES, FIRST_SEED = 5, 1000  # of what is known: other seeds than those of the searches
WAYS = ("cold", "best", "outcomes")
Counts = set[int]  # of neighbours
Job = tuple[str, str, int, int, int, int]  # way, space, neighbours, seed, evaluations, known

_families: dict[str, tuple[MeasuredSpace, ...]] = {}  # of this process: by the name of a space


def families(paths: Sequence[Path]) -> Iterator[tuple[MeasuredSpace, ...]]:
    """Spaces that have a neighbour, with it and all others of the same parameters."""
    recorded: dict[tuple[str, str], list[str]] = {}
    for name in recording_names():
        heading = find_recording(name).heading
        recorded.setdefault((heading.kernel, heading.template), []).append(name)
    given: dict[tuple[object, ...], list[MeasuredSpace]] = {}
    for space in map(file_space, paths):
        key = tuple((each.name, each.values) for each in space.parameters)
        given.setdefault(key, []).append(space)
    yield from (recorded_family(names) for names in recorded.values() if len(names) > 1)
    yield from (tuple(spaces) for spaces in given.values() if len(spaces) > 1)


def neighbours_of(space: str, count: int) -> list[str]:
    """The next spaces of its family, in a circle."""
    names = [each.name for each in _families[space]]
    place = names.index(space)
    return [*names[place + 1 :], *names[:place]][:count]


def _space(name: str) -> MeasuredSpace:
    return next(each for each in _families[name] if each.name == name)


@cache
def known_of(space: str, seed: int, evaluations: int) -> tuple[tuple[Items, float], ...]:
    """The correct points that a cold search tried, with their times: as many as a plan freezes."""
    measured = _space(space)
    strategy = STRATEGIES[STRATEGY]("recorded", {TEMPLATE: measured.searched()}, [], seed)
    times: list[tuple[Items, float]] = []
    for _ in range(evaluations):
        if (proposal := strategy.ask()) is None:
            break
        time = measured.time_of[proposal.candidate.parameters]
        right = math.isfinite(time)
        strategy.tell(proposal, Objective(math.log(time)) if right else Infeasible())
        if right:
            times.append((proposal.candidate.parameters, time))
    ranked = sorted(range(len(times)), key=lambda number: times[number][1])
    return tuple(times[number] for number in spread(ranked, OUTCOMES))


def run(job: Job) -> Row:
    way, name, count, seed, evaluations, known = job
    seeds, histories = [], []
    for neighbour in neighbours_of(name, count):
        times = known_of(neighbour, FIRST_SEED + seed % HISTORIES, known)
        best = min(times, key=lambda each: each[1])[0]
        seeds.append(Candidate("recorded", TEMPLATE, best, Origin(OriginKind.SEEDED)))
        histories.append(History.of_times(TEMPLATE, times))
    options = Options(histories=tuple(histories) if way == "outcomes" else ())
    space = _space(name)
    known_seeds = [each for each in seeds if each.parameters in space.time_of]
    row = searched(space, STRATEGY, seed, evaluations, known_seeds, options)
    return {**row, "way": way, "neighbours": count, "known": known}


def _key(row: Row) -> Job:
    names = ("way", "space", "neighbours", "seed", "budget", "known")
    return tuple(row[name] for name in names)  # type: ignore[return-value]


def _jobs(seeds: int, evaluations: int, known: int) -> list[Job]:
    counts = {name: sorted({1, min(MOST, len(family) - 1)}) for name, family in _families.items()}
    settings = [
        (way, name, count)
        for name in _families
        for way in WAYS
        for count in ([0] if way == "cold" else counts[name])
    ]
    return [(*each, seed, evaluations, known) for seed in range(seeds) for each in settings]


def _needed(row: Row, share: float) -> float:
    goal = float(_space(row["space"]).times.min()) * share
    return min(row["budget"], evaluations_to(row["curve"], goal))


def _line(rows: Sequence[Row], way: str, space: str, count: int) -> Row:
    """The median evaluations of one way on one space."""
    own = [
        row for row in rows if (row["way"], row["space"], row["neighbours"]) == (way, space, count)
    ]
    line: Row = {
        "what": "line",
        "space": space,
        "way": way,
        "neighbours": neighbours_of(space, count),
    }
    for goal, share in GOALS.items():
        needed = np.array([_needed(row, share) for row in own])
        dice = np.random.default_rng(0)
        low, high = interval(needed, lambda drawn: np.asarray(np.median(drawn, axis=-1)), dice)
        line[goal] = {"median": float(np.median(needed)), "interval": [low, high]}
    line["ask_ms"] = round(float(np.mean([row["ask_ms"] for row in own])), 1)
    return line


def _compared(rows: Sequence[Row], against: str, spaces: Sequence[str], counts: Counts) -> Row:
    """Evaluations with outcomes over those of another way, search by search."""
    others = {
        (row["space"], row["neighbours"], row["seed"]): row for row in rows if row["way"] == against
    }
    own = [
        row
        for row in rows
        if row["way"] == "outcomes" and row["space"] in spaces and row["neighbours"] in counts
    ]
    line: Row = {"what": "ratio", "against": against, "spaces": list(spaces), "searches": len(own)}
    for goal, share in GOALS.items():
        logs = []
        for row in own:
            count = 0 if against == "cold" else row["neighbours"]
            other = others[row["space"], count, row["seed"]]
            logs.append(math.log(_needed(row, share) / _needed(other, share)))
        line[goal] = mean_ratio(np.array(logs), np.random.default_rng(0))
    return line


def _summary(rows: Sequence[Row]) -> Iterator[Row]:
    kinds = dict.fromkeys((row["space"], row["neighbours"], row["way"]) for row in rows)
    for space, count, way in sorted(
        kinds, key=lambda kind: (list(_families).index(kind[0]), kind[1])
    ):
        yield _line(rows, way, space, count)
    groups = dict.fromkeys(tuple(each.name for each in family) for family in _families.values())
    for against in ("best", "cold"):
        for spaces in [*groups, tuple(_families)]:
            for which, counts in (("one", {1}), ("up to four", set(range(1, MOST + 1)) - {1})):
                if any(row["neighbours"] in counts and row["space"] in spaces for row in rows):
                    yield {**_compared(rows, against, spaces, counts), "neighbours": which}


def main() -> None:
    parser = searches_parser(__doc__, 120)
    parser.add_argument("--space", type=Path, action="append", default=[], metavar="FILE")
    parser.add_argument("--known", type=int, default=200)
    options = parser.parse_args()
    for family in families(options.space):
        _families.update({space.name: family for space in family})
    jobs = _jobs(options.seeds, options.evaluations, options.known)
    rows = completed(options, jobs, run, _key)
    setting: Row = {
        "what": "setting",
        "seeds": options.seeds,
        "evaluations": options.evaluations,
        "known": options.known,
        "outcomes": OUTCOMES,
    }
    lines = list(_summary([rows[job] for job in jobs]))
    publish("search_transfer", [setting, *lines], save=options.save)


if __name__ == "__main__":
    main()
