"""Milliseconds a trial for begin + record on this disk, and for telling the strategy, at 1,000 trials."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

import store_values as values

from bench.environment import publish
from greenfast.db.store import Store
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.space.space import Space
from greenfast.search.strategies import STRATEGIES, Objective, Proposal

TRIALS = 1000
CHECKS = 130  # outputs that one right attention candidate is compared on
FOLDER = ROOT / "build"  # on the disk that is asked about; /tmp is often memory


def store_rows() -> list[dict]:
    """Begin and record 1,000 right trials, then read them back as a resumed search does."""
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
        rows = [_row(name, found) for name, found in took.items()]
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


def tell_rows() -> list[dict]:
    """Tell each strategy the outcomes of 1,000 random candidates; asking is the sampler's and not timed."""
    catalogue = Catalogue.from_environment()
    kernel = catalogue.kernel("attention")
    space = Space(
        kernel.template("wmma"), kernel.workload("mission").compile_time(kernel), device("h200")
    )
    points = random.Random(1).sample(space.points, min(TRIALS, len(space.points)))
    rows = []
    for name in sorted(STRATEGIES):
        strategy = STRATEGIES[name](kernel.name, {"wmma": space}, (), 1)
        told = []
        for number, point in enumerate(points):
            candidate = Candidate(kernel.name, "wmma", point, Origin(OriginKind.SAMPLED))
            proposal, objective = Proposal(candidate), Objective(number % 37 / 37)
            told.append(_timed(partial(strategy.tell, proposal, objective)))
        rows.append(_row(f"tell {name}", told))
    return rows


def _timed(work) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3


def _row(what: str, took: list[float]) -> dict:
    ordered = sorted(took)
    return {
        "what": what,
        "count": len(took),
        "mean_ms": round(statistics.fmean(took), 3),
        "median_ms": round(statistics.median(took), 3),
        "p99_ms": round(ordered[int(len(took) * 0.99)], 3),
    }


if __name__ == "__main__":
    publish("store", [*store_rows(), *tell_rows()])
