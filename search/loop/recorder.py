"""Writes what a search begins and records, in a thread of its own, so that its loop never waits.

A transaction takes 10 ms or more, and in a busy process also the time until Python's lock is free.
Meanwhile no candidate would begin. Trials that wait together share a transaction, and those that
begin go before those that ended, because the evaluation of the former waits for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from greenfast.search.loop.sink import Begun, Record, Sink

MOST_RECORDS = 16  # trials of one transaction, so that those that begin never wait long for it
T = TypeVar("T")
_Calls = deque[tuple[Sequence[T], Future[None]]]


class Recorder:
    """`begin` and `record` of a sink, whose results come later.

    As a context manager, it writes all that was handed in before its block ends.
    """

    def __init__(self, sink: Sink, *, is_apart: bool) -> None:
        """Unless `is_apart`, a call writes in the caller's thread and raises the sink's error."""
        self._sink, self._is_apart = sink, is_apart
        self._changed = threading.Condition()
        self._begun: _Calls[Begun] = deque()
        self._ended: _Calls[Record] = deque()
        self._is_closing = False
        self._thread = threading.Thread(target=self._write, name="record", daemon=True)

    def __enter__(self) -> Recorder:
        if self._is_apart:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._is_apart:
            self._thread.join()

    def begin(self, begun: Sequence[Begun]) -> Future[None]:
        """Note that these trials are about to start. The future has the sink's error, if any."""
        return self._handed_in(self._sink.begin, begun, self._begun)

    def record(self, records: Sequence[Record]) -> Future[None]:
        """Store these trials, after those of the calls before."""
        return self._handed_in(self._sink.record, records, self._ended)

    def _handed_in(
        self, write: Callable[[Sequence[T]], None], entries: Sequence[T], calls: _Calls[T]
    ) -> Future[None]:
        future: Future[None] = Future()
        if self._is_apart:
            with self._changed:
                calls.append((entries, future))
                self._changed.notify()
        else:
            write(entries)
            future.set_result(None)
        return future

    def _write(self) -> None:
        while True:
            with self._changed:
                while not (self._begun or self._ended or self._is_closing):
                    self._changed.wait()
                if not (self._begun or self._ended):
                    return
                begun, ended = list(self._begun), [] if self._begun else self._next_ended()
                self._begun.clear()
            if begun:
                _write_all(self._sink.begin, begun)
            else:
                _write_all(self._sink.record, ended)

    def _next_ended(self) -> list[tuple[Sequence[Record], Future[None]]]:
        """Take the first calls of `record`: one, or several with MOST_RECORDS trials at most."""
        taken: list[tuple[Sequence[Record], Future[None]]] = []
        count = 0
        while self._ended and (not taken or count + len(self._ended[0][0]) <= MOST_RECORDS):
            taken.append(self._ended.popleft())
            count += len(taken[-1][0])
        return taken


class Written(Generic[T]):
    """What the loop goes on with as soon as it is written, in order. It has the trials' length."""

    def __init__(self) -> None:
        self._batches: deque[tuple[Future[None], Sequence[T]]] = deque()

    def __len__(self) -> int:
        return sum(len(batch) for _, batch in self._batches)

    def add(self, future: Future[None], batch: Sequence[T]) -> Future[None]:
        self._batches.append((future, batch))
        return future

    def written(self) -> Iterator[Sequence[T]]:
        """Take the first batches that are written; raises the sink's error."""
        while self._batches and self._batches[0][0].done():
            future, batch = self._batches.popleft()
            future.result()
            yield batch


def _write_all(
    write: Callable[[Sequence[T]], None], calls: Sequence[tuple[Sequence[T], Future[None]]]
) -> None:
    """One transaction for several calls."""
    try:
        write([entry for entries, _ in calls for entry in entries])
    except BaseException as error:
        for _, future in calls:
            future.set_exception(error)
    else:
        for _, future in calls:
            future.set_result(None)
