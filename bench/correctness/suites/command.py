"""The command line of the package."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

from bench.command_line import script_parser
from bench.correctness import suites
from bench.correctness.suites import hirace, scor
from bench.correctness.suites.cases import SuiteCase
from bench.correctness.suites.checking import DIFFERENT, RIGHT, check_case
from bench.correctness.suites.scores import summary
from bench.environment import environment
from bench.results import Row, write_json
from greenfast.search.cores import usable_cores
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.emulator.target import EmulatorTarget

SUITES: dict[str, Callable[[Path], list[SuiteCase]]] = {"hirace": hirace.cases, "scor": scor.cases}
TARGET = "emulator:h200"
WORKERS = 2  # host threads of a run


def check_some(cases: Sequence[SuiteCase], cache: Path) -> list[Row]:
    """The rows of cases that one process checks, one after another."""
    include_dirs = Catalogue([REPOSITORY_TEMPLATES]).include_dirs
    target = open_target(TARGET, TargetSettings(cache, include_dirs, WORKERS))
    assert isinstance(target, EmulatorTarget)
    with closing(target), tempfile.TemporaryDirectory(prefix="greenfast-suite-") as folder:
        target.prepare()
        return [check_case(case, target, Path(folder)).row() for case in cases]


def check_all(cases: Sequence[SuiteCase], jobs: int) -> Iterator[Row]:
    """Every case's row, in order; `jobs` processes take parts of the suite."""
    step = max(1, min(16, -(-len(cases) // jobs)))
    parts = [cases[start : start + step] for start in range(0, len(cases), step)]
    with (
        tempfile.TemporaryDirectory(prefix="greenfast-suites-") as cache,
        ProcessPoolExecutor(jobs) as pool,
    ):
        for rows in pool.map(partial(check_some, cache=Path(cache)), parts):
            yield from rows


def main() -> int:
    parser = script_parser(suites.__doc__)
    parser.add_argument("suite", choices=tuple(SUITES))
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT")
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument(
        "--jobs", type=int, default=usable_cores(), help="processes beside each other"
    )
    options = parser.parse_args()
    words, begin = options.words or [""], time.monotonic()
    cases = SUITES[options.suite](options.checkout)
    selected = [case for case in cases if any(word in case.name for word in words)]
    if not selected:
        raise SystemExit(f"{options.checkout} holds no such files of {options.suite}")
    rows = []
    for row in check_all(selected, options.jobs):
        rows.append(row)
        if row["outcome"] != RIGHT:
            print(f"{row['name']}: {row['outcome']}: {row['stop'] or row['first']}", flush=True)
    counted = summary(options.suite, rows, time.monotonic() - begin)
    write_json(options.out, {"environment": environment(), "rows": [counted, *rows]})
    print(counted)
    return 0 if all(row["outcome"] in (RIGHT, DIFFERENT) for row in rows) else 1
