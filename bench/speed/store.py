"""Milliseconds per trial to store it on this disk and to tell a strategy of it, at 1,000 trials.

python -m bench.speed.store [--save]
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.command_line import add_save, script_parser
from bench.environment import publish
from bench.results import ROOT, Row
from greenfast.db.store import Store
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.space.space import Space
from greenfast.search.strategies import STRATEGIES
from greenfast.search.strategies.base import Objective, Proposal
from tests import store_values as values

TRIALS = 1000
CHECKS = 130  # outputs of a correct attention candidate that are compared
FOLDER = ROOT / "build"  # on the measured disk; the system's temporary folder is often memory


def store_rows() -> list[Row]:
    """Begin and record 1,000 correct trials, then read them back as a resumed search does."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        path = Path(folder) / "bench.sqlite"
        store = Store.open(f"sqlite:///{path}")
        search = store.submit(values.plan(trials=TRIALS))
        claim = store.claim("bench", 30.0)
        took: dict[str, list[float]] = {"begin": [], "record": [], "begin and record": []}
        for number in range(TRIALS):
            trial = values.trial(number, values.green(number, 100.0 + number % 37, checks=CHECKS))
            source = values.source(number)
            times = [time.perf_counter()]
            store.begin(claim, number, Proposal(trial.candidate, trial.sampler))
            times.append(time.perf_counter())
            store.record(claim, trial, source)
            times.append(time.perf_counter())
            for name, first, last in (
                ("begin", 0, 1),
                ("record", 1, 2),
                ("begin and record", 0, 2),
            ):
                took[name].append((times[last] - times[first]) * 1e3)
        rows = [_row(name, times) for name, times in took.items()]
        for name, read in (
            ("resume: history", lambda: store.history(claim)),
            ("page of 50 by time", lambda: store.trials(search.id, sort="time_median_us")),
            ("counts", lambda: store.counts(search.id)),
            ("best", lambda: store.best(search.id)),
            ("one trial with evidence", lambda: store.trial(search.id, 500)),
        ):
            rows.append(_row(f"{name}, of {TRIALS} trials", [_timed(read) for _ in range(5)]))
        store.close()
        rows.append({"what": "bytes a trial on disk", "bytes": round(path.stat().st_size / TRIALS)})
    return rows


def tell_rows() -> list[Row]:
    """Tell each strategy the outcomes of 1,000 random candidates. Asking is not timed."""
    catalogue = Catalogue.from_environment()
    kernel = catalogue.kernel("attention")
    space = Space(
        kernel.template("wmma"), kernel.workload("mission").compile_time(kernel), device("h200")
    )
    points = random.Random(1).sample(space.points, min(TRIALS, len(space.points)))
    rows = []
    for name in sorted(STRATEGIES):
        strategy = STRATEGIES[name](kernel.name, {"wmma": space}, (), 1)
        times = []
        for number, point in enumerate(points):
            candidate = Candidate(kernel.name, "wmma", point, Origin(OriginKind.SAMPLED))
            proposal, objective = Proposal(candidate), Objective(number % 37 / 37)
            times.append(_timed(partial(strategy.tell, proposal, objective)))
        rows.append(_row(f"tell {name}", times))
    return rows


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3


def _row(what: str, times_ms: list[float]) -> Row:
    ordered = sorted(times_ms)
    return {
        "what": what,
        "count": len(times_ms),
        "mean_ms": round(statistics.fmean(times_ms), 3),
        "median_ms": round(statistics.median(times_ms), 3),
        "p99_ms": round(ordered[int(len(times_ms) * 0.99)], 3),
    }


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    options = parser.parse_args()
    publish("store", [*store_rows(), *tell_rows()], save=options.save)


if __name__ == "__main__":
    main()
