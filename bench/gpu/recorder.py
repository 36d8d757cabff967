"""A search's sinks in memory and in SQLite, and its trials as rows of a result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from bench.results import Row
from greenfast.search.loop.comparison import Confirmation, Peer
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.loop.sink import Begun, Control, Record, Sink
from greenfast.search.loop.spending import Spent
from greenfast.search.verdict import GateResult, Trial, performance_of, verdict_name

LEASE_S = 3600.0
T = TypeVar("T")


class Recorder:
    """Keeps trials with the time at which each was recorded, and confirmations."""

    place = "memory"

    def __init__(self) -> None:
        self.trials: list[Trial] = []
        self.at_s: list[float] = []
        self.writing_s: dict[str, float] = {}  # of calls that make something durable
        self.writes: dict[str, int] = {}
        self.confirmations: list[Confirmation] = []

    def begin(self, begun: Sequence[Begun]) -> None: ...

    def record(self, records: Sequence[Record]) -> None:
        self.trials += [trial for trial, _ in records]
        self.at_s += [time.perf_counter()] * len(records)

    def confirm(self, confirmation: Confirmation) -> None:
        self.confirmations.append(confirmation)

    def settle(self, number: int, result: GateResult) -> None: ...

    def beside(self, peer: Peer) -> None: ...

    def control(self, spent: Spent) -> Control:
        return Control.RUN


class StoringRecorder(Recorder):
    """Passes everything on to a database first, as the command does."""

    place = "SQLite"

    def __init__(self, sink: Sink, *, singly: bool = False) -> None:
        """`singly`: each trial in a transaction of its own."""
        super().__init__()
        self._sink, self._singly = sink, singly

    def begin(self, begun: Sequence[Begun]) -> None:
        for part in self._parts(begun):
            self._timed("begin", self._sink.begin, part)

    def record(self, records: Sequence[Record]) -> None:
        for part in self._parts(records):
            self._timed("record", self._sink.record, part)
        super().record(records)

    def _parts(self, items: Sequence[T]) -> Sequence[Sequence[T]]:
        return [[item] for item in items] if self._singly else [items]

    def _timed(self, name: str, call: Callable[[T], None], argument: T) -> None:
        began = time.perf_counter()
        call(argument)
        taken_s = time.perf_counter() - began
        self.writing_s[name] = self.writing_s.get(name, 0.0) + taken_s
        self.writes[name] = self.writes.get(name, 0) + 1

    def control(self, spent: Spent) -> Control:
        return self._sink.control(spent)


@contextmanager
def opened_recorder(folder: Path, plan: SearchPlan, *, singly: bool = False) -> Iterator[Recorder]:
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
        yield StoringRecorder(StoreSink(store, claim, LEASE_S), singly=singly)
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
