"""Transactions: short, readers apart from writers, errors translated on the way out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session

from greenfast.db.dialects import WRITER, has_one_writer, reader_options
from greenfast.db.faults import translated
from greenfast.db.timeouts import DEFAULT_TIMEOUTS, Timeouts
from greenfast.search.errors import Fault


class Database:
    """Hands out transactions on one engine."""

    def __init__(self, engine: Engine, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
        self.engine = engine
        # SQLite looks for its lock at growing intervals, so a thread that waited longest may wait
        # until its timeout while others pass. Threads of one process wait here instead.
        self._turn = threading.Lock() if has_one_writer(engine) else None
        self._busy_s = timeouts.busy_s
        self._readers = engine.execution_options(**reader_options(engine))
        self._writers = engine.execution_options(**{WRITER: True})

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """One consistent view."""
        with self._transaction(self._readers) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """All or nothing, and on disk when it returns. On SQLite one at a time: others wait."""
        with self._own_turn(), self._transaction(self._writers) as session:
            yield session

    @contextmanager
    def writing_rows(self) -> Iterator[Connection]:
        """`writing` without a session's own work: every trial is written twice."""
        with self._own_turn(), translated(), self._writers.begin() as connection:
            yield connection

    @contextmanager
    def _own_turn(self) -> Iterator[None]:
        if self._turn is None:
            yield
            return
        if not self._turn.acquire(timeout=self._busy_s):
            raise Fault(
                f"other requests of this process have written to the database for {self._busy_s:g} "
                "s",
                code="database_busy",
                mend="try again",
            )
        try:
            yield
        finally:
            self._turn.release()

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Session]:
        with translated(), Session(engine, autoflush=False) as session, session.begin():
            yield session

    def close(self) -> None:
        self.engine.dispose()
