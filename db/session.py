"""Transactions: short, readers apart from writers, errors translated on the way out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from greenfast.db.dialects import WRITER, reader_options
from greenfast.db.faults import translated


class Database:
    """Hands out transactions on one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
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
        with self._transaction(self._writers) as session:
            yield session

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Session]:
        with translated(), Session(engine, autoflush=False) as session, session.begin():
            yield session

    def close(self) -> None:
        self.engine.dispose()
