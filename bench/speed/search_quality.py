"""How many evaluations does each strategy need, without presets or history?

    python -m bench.speed.search_quality SEARCHES.jsonl [--space FILE ...] [--seeds 20]
        [--evaluations 200] [--strategy NAME ...] [--kernel-tuner FILE] [--unseen] [--keep] [--save]
    python -m bench.speed.search_quality --write-spaces SPACES.json [--space FILE ...]

Every strategy searches every recording and every given space (a T4 file or Kernel Tuner cache) from
nothing, with the same budget and the same number of seeds. Nothing is compiled: outcomes come from
the space. A space of fewer than five points for each evaluation is left out. Beside ours are
Optuna's samplers without help (`search_quality_optuna.py`).

Searches are appended to SEARCHES.jsonl as they end, and a second run does those that are missing.
`--unseen` takes spaces on which no feature of a strategy was chosen.

`--kernel-tuner` adds the searches that `bench.speed.search_quality_kernel_tuner` wrote. A strategy
of others may have fewer searches, at least 20 on every space: its figures come from those. A
strategy that has too few is left out, with a message. `--keep` takes its figures from the stored
result, if that has the same spaces, evaluations and seeds. The figures are those of
`search_quality_figures.py`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from bench.command_line import add_save, script_parser
from bench.environment import publish
from bench.results import Row, find_result
from bench.speed.search_quality_figures import overall, summary
from bench.speed.search_quality_optuna import SAMPLERS, sampled
from bench.speed.search_quality_spaces import MeasuredSpace, measured_spaces
from greenfast.search.space.candidate import Candidate
from greenfast.search.strategies import STRATEGIES
from greenfast.search.strategies.base import Infeasible, Objective, Options, Strategy

TEMPLATE = "recorded"
NO_OPTIONS = Options()
LEFT_OUT = ("exhaustive",)  # the order of a file means nothing
OURS = tuple(name for name in sorted(STRATEGIES) if name not in LEFT_OUT)
SEEN, UNSEEN = "search_quality", "search_quality_unseen"  # the results
LEAST_SEEDS = 20  # of a strategy of others
LEAST_POINTS = 5  # of a space, for each evaluation: of fewer, a search would list a large part
Search = tuple[str, str, int, int]  # space, strategy, seed, budget
Job = TypeVar("Job", bound=Hashable)

_spaces: dict[str, MeasuredSpace] = {}  # of this process


def searched(
    measured: MeasuredSpace,
    name: str,
    seed: int,
    evaluations: int,
    seeds: Sequence[Candidate] = (),
    options: Options = NO_OPTIONS,
    prepare: Callable[[Strategy], None] = lambda strategy: None,
) -> Row:
    """One search, cold by default. It ends early when it has the best point of the space.

    `prepare` is called with the strategy before its first proposal.
    """
    best, curve = math.inf, []
    strategy = STRATEGIES[name]("recorded", {TEMPLATE: measured.searched()}, seeds, seed, options)
    prepare(strategy)
    goal, started = float(measured.times.min()), time.process_time()
    for number in range(1, evaluations + 1):
        proposal = strategy.ask()
        if proposal is None:
            break
        figure = measured.time_of[proposal.candidate.parameters]
        if figure < best:
            best = figure
            curve.append([number, figure])
        if best <= goal:
            break
        right = math.isfinite(figure)
        strategy.tell(proposal, Objective(math.log(figure)) if right else Infeasible())
    return {
        "space": measured.name,
        "strategy": name,
        "seed": seed,
        "budget": evaluations,
        "curve": curve,
        "ask_ms": round((time.process_time() - started) * 1e3 / number, 2),
    }


def search_of(search: Search) -> Row:
    """A search in a process that has the spaces."""
    space, strategy, seed, budget = search
    run = sampled if strategy in SAMPLERS else searched
    return run(_spaces[space], strategy, seed, budget)


def searches_parser(description: str | None, evaluations: int) -> argparse.ArgumentParser:
    """Options of a script that appends searches to a file, and goes on where it ended."""
    parser = script_parser(description)
    add_save(parser)
    parser.add_argument("searches", type=Path, metavar="SEARCHES.jsonl")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=evaluations)
    parser.add_argument("--cores", type=int, default=2)
    return parser


def stored(path: Path) -> list[Row]:
    """The searches of a file; a last line that was cut off is none."""
    if not path.is_file():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def completed(
    options: argparse.Namespace,
    jobs: Sequence[Job],
    run: Callable[[Job], Row],
    job_of: Callable[[Row], Job],
) -> dict[Job, Row]:
    """Run the jobs that the file of searches lacks, append their rows, and return all of the file.

    A job is a tuple, which a row names again.
    """
    done = {job_of(row) for row in stored(options.searches)}
    with ProcessPoolExecutor(options.cores) as pool, options.searches.open("a") as file:
        for row in pool.map(run, [job for job in jobs if job not in done]):
            file.write(json.dumps(row) + "\n")
            file.flush()
    return {job_of(row): row for row in stored(options.searches)}


def _key(row: Row) -> Search:
    return row["space"], row["strategy"], row["seed"], row["budget"]


def complete_lines(rows: Iterable[Row], seeds: int, evaluations: int) -> list[Row]:
    """The figures of each strategy that has the searches; a message for the others."""
    searches = {_key(row): row for row in rows if not row.get("failure")}
    lines, means = [], []
    for strategy in dict.fromkeys(row["strategy"] for row in searches.values()):
        count = _complete_seeds(searches, strategy, seeds, evaluations)
        if count < min(seeds, seeds if strategy in STRATEGIES else LEAST_SEEDS):
            print(f"{strategy} has only {count} of {seeds} searches a space", file=sys.stderr)
            continue
        of_strategy = [
            searches[space, strategy, seed, evaluations]
            for space in _spaces
            for seed in range(count)
        ]
        for name, space in _spaces.items():
            same = [row for row in of_strategy if row["space"] == name]
            lines.append(summary(space, strategy, same, evaluations))
        means.append({**overall(_spaces, strategy, of_strategy, evaluations), "searches": count})
        asks = [row["ask_ms"] for row in of_strategy if "ask_ms" in row]
        if asks:
            means[-1]["ask_ms"] = round(sum(asks) / len(asks), 1)
    return [*lines, *means]


def stored_setting(result: str) -> Row:
    (setting,) = (row for row in find_result(result)["rows"] if row["what"] == "setting")
    return setting


def kept_lines(result: str, setting: Row, lines: Iterable[Row]) -> list[Row]:
    """The stored figures of strategies that have none among the lines."""
    stored_rows, before = find_result(result)["rows"], stored_setting(result)
    for name in ("spaces", "evaluations", "seeds"):
        if before[name] != setting[name]:
            raise SystemExit(f"--keep: the stored result has other {name}")
    known = {row["strategy"] for row in lines}
    return [row for row in stored_rows if row.get("strategy") not in {None, *known}]


def _complete_seeds(
    searches: Mapping[Search, Row], strategy: str, seeds: int, evaluations: int
) -> int:
    """How many of the seeds, from the first, have a search on every space."""
    for seed in range(seeds):
        if not all((space, strategy, seed, evaluations) in searches for space in _spaces):
            return seed
    return seeds


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    parser.add_argument("searches", type=Path, nargs="?", metavar="SEARCHES.jsonl")
    parser.add_argument("--space", type=Path, action="append", default=[], metavar="FILE")
    parser.add_argument("--strategy", action="append", choices=[*OURS, *SAMPLERS])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--kernel-tuner", type=Path, metavar="FILE")
    parser.add_argument("--no-searches", action="store_true", help="only sum up the files")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--write-spaces", type=Path, metavar="SPACES.json")
    parser.add_argument(
        "--unseen", action="store_true", help="the given spaces alone; a result of its own"
    )
    options = parser.parse_args()
    least = LEAST_POINTS * options.evaluations
    measured = measured_spaces(options.space, recordings=not options.unseen)
    spaces = [each for each in measured if len(each.points) >= least]
    _spaces.update({space.name: space for space in spaces})
    if options.write_spaces is not None:
        plain = [space.as_json() for space in _spaces.values()]
        options.write_spaces.write_text(json.dumps(plain))
        return
    if options.searches is None:
        parser.error("name the file that keeps the searches")
    searches = [
        (space, strategy, seed, options.evaluations)
        for strategy in options.strategy or [*OURS, *SAMPLERS]
        for seed in range(options.seeds)
        for space in _spaces
    ]
    completed(options, [] if options.no_searches else searches, search_of, _key)
    others = stored(options.kernel_tuner) if options.kernel_tuner is not None else []
    setting: Any = {
        "what": "setting",
        "seeds": options.seeds,
        "evaluations": options.evaluations,
        "spaces": [{"space": name, "points": len(space.points)} for name, space in _spaces.items()],
        "kernel_tuner": next((row["version"] for row in others), ""),
    }
    rows = [*stored(options.searches), *others]
    figures = complete_lines(rows, options.seeds, options.evaluations)
    result = UNSEEN if options.unseen else SEEN
    if options.keep:
        setting["kernel_tuner"] = setting["kernel_tuner"] or stored_setting(result)["kernel_tuner"]
        figures += kept_lines(result, setting, figures)
    publish(result, [setting, *figures], save=options.save)


if __name__ == "__main__":
    main()
