"""Searches that judge a submitted source."""

from __future__ import annotations

from sqlalchemy import func, select

from greenfast.db import convert
from greenfast.db.base import Part
from greenfast.db.models import SearchRecord
from greenfast.db.paging import after, check_limit, page_of, values_of
from greenfast.db.rows import Page, SearchRow
from greenfast.db.searches import search_row
from greenfast.search.kernels.submitted_name import PREFIX
from greenfast.search.status import SearchStatus


class Submissions(Part):
    """The part of the store that finds submissions: a plan names their template."""

    def submissions(
        self,
        kernel: str | None = None,
        template: str = PREFIX,
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[SearchRow]:
        """Submissions, newest first: of one kernel, or of one source by its template's name."""
        check_limit(limit)
        order = "submissions"
        behind = values_of(cursor, order, (int,))
        query = select(SearchRecord).where(
            SearchRecord.plan.contains(f'"templates":["{template}', autoescape=True),
            after((SearchRecord.key,), behind, descending=True),
        )
        if kernel is not None:
            query = query.where(SearchRecord.kernel == convert.storable(kernel))
        with self._database.reading() as session:
            rows = session.execute(query.order_by(SearchRecord.key.desc()).limit(limit + 1)).all()
            return page_of(
                rows,
                limit,
                order,
                lambda row: (row[0].key,),
                lambda row: search_row(session, row[0].id),
            )

    def waiting_submissions(self) -> int:
        """How many submissions no worker has ended."""
        query = select(func.count()).where(
            SearchRecord.status.in_((SearchStatus.QUEUED, SearchStatus.RUNNING)),
            SearchRecord.plan.contains(f'"templates":["{PREFIX}', autoescape=True),
        )
        with self._database.reading() as session:
            return session.scalar(query) or 0
