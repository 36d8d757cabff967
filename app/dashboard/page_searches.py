"""`/`: running and queued searches, earlier ones, champions, and the newest negatives."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from greenfast.app.dashboard.page_champions import matrices
from greenfast.app.dashboard.pages import PageRoute, one_of, render, services_of
from greenfast.app.views.progress import progress
from greenfast.app.views.schemas import ProgressOut
from greenfast.db.rows import Counts, SearchRow, TrialRow
from greenfast.db.store import Store
from greenfast.search.status import SearchStatus

PAGE = 25
MOST_ACTIVE = 50
NEWEST_NEGATIVES = 5
ACTIVE = (SearchStatus.RUNNING, SearchStatus.QUEUED)
OTHERS = tuple(status for status in SearchStatus if status not in ACTIVE)
SHOWN_STATUSES = (*ACTIVE, *OTHERS)

router = APIRouter(route_class=PageRoute)


@dataclass(frozen=True)
class Line:
    """One search as the list shows it."""

    row: SearchRow
    counts: Counts
    best: TrialRow | None
    progress: ProgressOut


@router.get("/")
def searches_page(
    request: Request, status: str | None = None, cursor: str | None = None
) -> Response:
    store = services_of(request).store
    status = one_of("status", status, SHOWN_STATUSES)
    # Active searches have their own part of the first page; the pages behind it list the others.
    page = store.searches(
        limit=PAGE,
        cursor=cursor or None,
        status=status,
        statuses=OTHERS,
        oldest_first=status == SearchStatus.QUEUED,  # the next to run first
    )
    active: list[SearchRow] = []
    more_active = []
    for state in ACTIVE if status is None and not cursor else ():
        shown = store.searches(
            limit=MOST_ACTIVE, status=state, oldest_first=state == SearchStatus.QUEUED
        )
        active += shown.items
        more_active += [state] if shown.next_cursor else []
    earlier, queue = page.items, store.queue_state()
    return render(
        "searches.html",
        {
            "active": [line(store, row) for row in active],
            "earlier": [line(store, row) for row in earlier],
            "status": status,
            "statuses": SHOWN_STATUSES,
            "more_active": more_active,
            "queue": queue,
            "next_cursor": page.next_cursor,
            "paged": bool(cursor),
            "matrices": () if cursor or status else matrices(store, services_of(request).catalogue),
            "negatives": () if cursor else store.negatives(limit=NEWEST_NEGATIVES).items,
            "kernels": services_of(request).catalogue.names(),
            "refresh_s": 3 if any(row.status in ACTIVE for row in (*active, *earlier)) else None,
        },
    )


def line(store: Store, row: SearchRow) -> Line:
    """The search with its counts, best trial and progress."""
    return Line(row, store.counts(row.id), store.best(row.id), progress(row))
