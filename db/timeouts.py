"""The store's timeouts. This file imports nothing of db/, because the settings use it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timeouts:
    """How long to wait for a database before reporting a fault."""

    busy_s: float = 10.0  # SQLite: for the transaction of another writer
    connect_s: float = 5.0  # PostgreSQL: for a connection; libpq rounds it up to 2 s
    statement_s: float = 30.0  # PostgreSQL: for the result of one statement


DEFAULT_TIMEOUTS = Timeouts()
