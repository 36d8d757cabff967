"""A search's sinks in memory and in SQLite, and its trials as rows of a result."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from bench.results import Row
from greenfast.search.loop.comparison import Confirmation, Peer
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.loop.sink import Control, Sink
from greenfast.search.loop.spending import Spent
from greenfast.search.render import RenderedSource
from greenfast.search.strategies.base import Proposal
from greenfast.search.verdict import GateResult, Trial, performance_of, verdict_name

LEASE_S = 3600.0


class Recorder:
    """Keeps trials with the time at which each was recorded, and confirmations."""

    place = "memory"

    def __init__(self) -> None:
        self.trials: list[Trial] = []
        self.at_s: list[float] = []
        self.confirmations: list[Confirmation] = []

    def begin(self, number: int, proposal: Proposal) -> None: ...

    def record(self, trial: Trial, source: RenderedSource | None) -> None:
        self.trials.append(trial)
        self.at_s.append(time.perf_counter())

    def confirm(self, confirmation: Confirmation) -> None:
        self.confirmations.append(confirmation)

    def settle(self, number: int, result: GateResult) -> None: ...

    def beside(self, peer: Peer) -> None: ...

    def control(self, spent: Spent) -> Control:
        return Control.RUN


class StoringRecorder(Recorder):
    """Passes everything on to a database first, as the command does."""

    place = "SQLite"

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink

    def begin(self, number: int, proposal: Proposal) -> None:
        self._sink.begin(number, proposal)

    def record(self, trial: Trial, source: RenderedSource | None) -> None:
        self._sink.record(trial, source)
        super().record(trial, source)

    def control(self, spent: Spent) -> Control:
        return self._sink.control(spent)


@contextmanager
def opened_recorder(folder: Path, plan: SearchPlan) -> Iterator[Recorder]:
    """One that stores in `folder`; one in memory on a machine without SQLAlchemy."""
    if find_spec("sqlalchemy") is None:
        yield Recorder()
        return
    from greenfast.db.sink import StoreSink
    from greenfast.db.store import Store

    store = Store.open(f"sqlite:///{folder / 'bench.sqlite'}")
    try:
        claim = store.claim("bench", LEASE_S, store.submit(plan).id)
        assert claim is not None, "nobody else has the database"
        yield StoringRecorder(StoreSink(store, claim, LEASE_S))
    finally:
        store.close()


def trial_row(trial: Trial) -> Row:
    """A trial with its verdict, time, ratio and all samples."""
    evidence = performance_of(trial.verdict)
    timing = evidence.timings[0] if evidence else None
    return {
        "number": trial.number,
        "template": trial.candidate.template,
        "parameters": trial.candidate.values(),
        "verdict": verdict_name(trial.verdict),
        "reason": getattr(trial.verdict, "reason", None),
        "us": timing.time_median_us if timing else None,
        "ratio": evidence.ratio_to_baseline if evidence else None,
        "interval": evidence.ratio_interval if evidence else None,
        "duration_s": round(trial.duration_s, 3),
        "samples": timing.samples if timing else (),
        "baseline_samples": timing.baseline_samples if timing else (),
    }


def verdict_and_reason(trial: Trial) -> str:
    """`rejected slower`, `green`."""
    return f"{verdict_name(trial.verdict)} {getattr(trial.verdict, 'reason', None) or ''}".strip()
