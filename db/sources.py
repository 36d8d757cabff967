"""Rendered sources by digest, or by its first digits."""

from __future__ import annotations

import re

from sqlalchemy import select

from greenfast.db.base import Part, utc
from greenfast.db.models import SourceRecord
from greenfast.db.rows import SourceRow
from greenfast.search.digest import text_digest
from greenfast.search.errors import Fault, UsageError

_PREFIX = re.compile(r"[0-9a-f]{8,64}")


class Sources(Part):
    """The part of the store that holds rendered sources."""

    def source(self, digest: str) -> SourceRow:
        """The source with that digest, of which the first 8 digits or more are enough.

        UsageError `unknown_source`, `ambiguous_source`; Fault `source_damaged`.
        """
        prefix = str(digest).lower()
        rows: list[SourceRow] = []
        if _PREFIX.fullmatch(prefix):
            query = select(SourceRecord).where(
                SourceRecord.digest >= prefix,
                SourceRecord.digest < prefix + "g",  # which sorts behind every digit
            )
            with self._database.reading() as session:
                rows = [
                    SourceRow(row.digest, row.text, row.kernel, row.template, utc(row.created_at))
                    for row in session.scalars(query.limit(2))
                ]
        if len(rows) > 1:
            raise UsageError(
                f"more than one source begins with {prefix}",
                code="ambiguous_source",
                mend="give more digits",
            )
        if not rows:
            raise UsageError(
                f"no source {str(digest)[:80]!r}",
                code="unknown_source",
                mend="a digest is 64 hexadecimal digits; its first 8 are enough",
            )
        if text_digest(rows[0].text) != rows[0].digest:
            raise Fault(
                f"the stored source {rows[0].digest[:12]} does not match its digest",
                code="source_damaged",
                mend="restore the database from a backup copy",
            )
        return rows[0]
