"""Shared by the parts of the store: the database, timestamps, and finding a search by its id."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from greenfast.db.ids import SEARCH_ID
from greenfast.db.models import SearchRecord
from greenfast.db.session import Database
from greenfast.search.errors import UsageError, unknown_name


class Part:
    """A part of the store; `Store` is all of them on one database."""

    def __init__(self, database: Database) -> None:
        self._database = database


def search_record(session: Session, search_id: str, *, lock: bool = False) -> SearchRecord:
    """The search with that id; UsageError `unknown_search`. `lock`: until the transaction ends."""
    record = None
    if SEARCH_ID.fullmatch(str(search_id)):
        query = select(SearchRecord).where(SearchRecord.id == search_id)
        record = session.scalar(query.with_for_update() if lock else query)
    if record is None:
        raise UsageError(
            f"no search {str(search_id)[:80]!r}",
            code="unknown_search",
            mend="`greenfast searches` lists them",
        )
    return record


def search_key(session: Session, search_id: str) -> int:
    """The primary key of the search with that id; UsageError `unknown_search`."""
    key = None
    if SEARCH_ID.fullmatch(str(search_id)):
        key = session.scalar(select(SearchRecord.key).where(SearchRecord.id == search_id))
    return key if key is not None else search_record(session, search_id).key


def check_name(kind: str, name: str | None, known: Iterable[Any]) -> str | None:
    """`name` as plain text; UsageError that lists the known names for any other."""
    names = [str(value) for value in known]
    if name is not None and str(name) not in names:
        raise unknown_name(kind, name, names)
    return str(name) if name is not None else None


def utc(seconds: float) -> str:
    """Seconds since 1970 as 2026-11-20T18:50:00.123Z."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc_or_none(seconds: float | None) -> str | None:
    return None if seconds is None else utc(seconds)
