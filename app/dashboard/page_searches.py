"""`/`: what runs now, what ran before, and what was found not to work."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from app.dashboard.page_champions import matrices
from app.dashboard.pages import PageRoute, one_of, render, services_of
from app.progress import progress
from app.schemas import ProgressOut
from db.rows import Counts, SearchRow, TrialRow
from db.store import Store

PAGE = 25
MOST_ACTIVE = 50
NEWEST_NEGATIVES = 5
ACTIVE = ("running", "queued")
STATUSES = ("running", "queued", "paused", "completed", "cancelled", "failed")

router = APIRouter(route_class=PageRoute)


@dataclass(frozen=True)
class Line:
    """One search as the list shows it."""

    row: SearchRow
    counts: Counts
    best: TrialRow | None
    progress: ProgressOut


@router.get("/")
def searches_page(request: Request, status: str | None = None, cursor: str | None = None) -> Response:
    store = services_of(request).store
    status = one_of("status", status, STATUSES)
    page = store.searches(limit=PAGE, cursor=cursor or None, status=status)
    active: list[SearchRow] = []
    if status is None and not cursor:
        active = [row for wanted in ACTIVE for row in store.searches(limit=MOST_ACTIVE, status=wanted).items]
    shown = {row.id for row in active}
    earlier = [row for row in page.items if row.id not in shown]
    return render("searches.html", {
        "active": [line(store, row) for row in active], "earlier": [line(store, row) for row in earlier],
        "status": status, "statuses": STATUSES, "next_cursor": page.next_cursor, "paged": bool(cursor),
        "matrices": () if cursor or status else matrices(store, services_of(request).catalogue),
        "negatives": () if cursor else store.negatives(limit=NEWEST_NEGATIVES).items,
        "kernels": services_of(request).catalogue.names(),
        "refresh_s": 3 if any(row.status in ACTIVE for row in (*active, *earlier)) else None})


def line(store: Store, row: SearchRow) -> Line:
    return Line(row, store.counts(row.id), store.best(row.id), progress(row))
