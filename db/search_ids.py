"""Searches by the beginning of their id, for people who type it."""

from __future__ import annotations

from sqlalchemy import select

from greenfast.db.base import Part
from greenfast.db.convert import storable
from greenfast.db.models import SearchRecord


class SearchIds(Part):
    """The part of the store that finds searches by a prefix."""

    def search_ids(self, prefix: str = "", *, limit: int = 50) -> tuple[tuple[str, str], ...]:
        """(id, name) of searches whose id begins with `prefix`, newest first."""
        query = (
            select(SearchRecord.id, SearchRecord.name)
            .where(SearchRecord.id.startswith(storable(prefix), autoescape=True))
            .order_by(SearchRecord.key.desc())
            .limit(limit)
        )
        with self._database.reading() as session:
            return tuple((row.id, row.name) for row in session.execute(query))
