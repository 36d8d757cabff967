"""What the parts of the store share: the database, times, and the search that an id names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from greenfast.db.models import SearchRecord
from greenfast.db.session import Database
from greenfast.search.errors import UsageError, unknown_name

SEARCH_ID = re.compile(r"s_[a-z2-7]{12}")


class Part:
    """A part of the store; `Store` is all of them on one database."""

    def __init__(self, database: Database) -> None:
        self._database = database


def found_search(session: Session, search_id: str, *, lock: bool = False) -> SearchRecord:
    """UsageError `unknown_search`."""
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
    key = None
    if SEARCH_ID.fullmatch(str(search_id)):
        key = session.scalar(select(SearchRecord.key).where(SearchRecord.id == search_id))
    return key if key is not None else found_search(session, search_id).key


def check_name(kind: str, name: str | None, known: Iterable[Any]) -> str | None:
    """Refuse a filter or order that is not one of the known."""
    names = [str(one) for one in known]
    if name is not None and str(name) not in names:
        raise unknown_name(kind, name, names)
    return str(name) if name is not None else None


def utc(seconds: float | None) -> str | None:
    """2026-11-20T18:50:00.123Z"""
    if seconds is None:
        return None
    return (
        datetime.fromtimestamp(seconds, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
