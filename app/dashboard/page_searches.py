"""`/`: running and queued searches, earlier ones, champions, and the newest negatives."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from greenfast.app.dashboard.page_champions import matrices
from greenfast.app.dashboard.page_negatives import designs_of_negatives
from greenfast.app.dashboard.page_new import defaults
from greenfast.app.dashboard.pages import PageRoute, one_of, render, services_of
from greenfast.app.views.progress import progress
from greenfast.app.views.schemas import ProgressOut
from greenfast.db.rows import Counts, SearchRow, TrialRow
from greenfast.db.store import Store
from greenfast.search.errors import GreenfastError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.status import SearchStatus

PAGE = 25
MOST_ACTIVE = 50
NEWEST_NEGATIVES = 5
FIRST_TRIALS = 12
LONGEST_FILTER = 200  # characters
ACTIVE = (SearchStatus.RUNNING, SearchStatus.QUEUED)
OTHERS = tuple(status for status in SearchStatus if status not in ACTIVE)
SHOWN_STATUSES = (*ACTIVE, *OTHERS)

router = APIRouter(route_class=PageRoute)


@dataclass(frozen=True)
class Filters:
    """The filters of the list of searches; each choice has its own URL."""

    status: str | None
    kernel: str | None
    text: str

    @property
    def any(self) -> bool:
        return bool(self.status or self.kernel or self.text)

    def url(self, **changes: str | None) -> str:
        values = {name: value for name, value in {**vars(self), **changes}.items() if value}
        return f"/?{urlencode(values)}" if values else "/"


@dataclass(frozen=True)
class Line:
    """One search as the list shows it."""

    row: SearchRow
    counts: Counts
    best: TrialRow | None
    progress: ProgressOut


@router.get("/")
def searches_page(
    request: Request,
    status: str | None = None,
    kernel: str = "",
    text: str = "",
    cursor: str | None = None,
) -> Response:
    services = services_of(request)
    store, catalogue = services.store, services.catalogue
    filters = Filters(
        one_of("status", status, SHOWN_STATUSES),
        kernel.strip()[:LONGEST_FILTER] or None,
        text.strip()[:LONGEST_FILTER],
    )
    status = filters.status
    # Active searches have their own part of the first page; the pages behind it list the others.
    page = store.searches(
        limit=PAGE,
        cursor=cursor or None,
        status=status,
        statuses=OTHERS,
        oldest_first=status == SearchStatus.QUEUED,  # the next to run first
        kernel=filters.kernel,
        text=filters.text,
    )
    active: list[SearchRow] = []
    more_active = []
    for state in ACTIVE if status is None and not cursor else ():
        shown = store.searches(
            limit=MOST_ACTIVE,
            status=state,
            oldest_first=state == SearchStatus.QUEUED,
            kernel=filters.kernel,
            text=filters.text,
        )
        active += shown.items
        more_active += [state] if shown.next_cursor else []
    earlier, queue = page.items, store.queue_state()
    negatives = [] if cursor or filters.any else store.negatives(limit=NEWEST_NEGATIVES).items
    return render(
        "searches.html",
        {
            "active": [line(store, row) for row in active],
            "earlier": [line(store, row) for row in earlier],
            "filters": filters,
            "statuses": SHOWN_STATUSES,
            "more_active": more_active,
            "queue": queue,
            "next_cursor": page.next_cursor,
            "paged": bool(cursor),
            "matrices": () if cursor or filters.any else matrices(store, catalogue),
            "negatives": negatives,
            "negative_designs": designs_of_negatives(services, negatives),
            "kernels": catalogue.names(),
            "first": None if active or earlier or filters.any else first_search(catalogue),
            "refresh_s": 3 if any(row.status in ACTIVE for row in (*active, *earlier)) else None,
        },
    )


@dataclass(frozen=True)
class FirstSearch:
    """A small search that one click starts; `fields` are the form's."""

    kernel: str
    workload: str
    target: str
    trials: int
    fields: tuple[tuple[str, str], ...]


def first_search(catalogue: Catalogue) -> FirstSearch | None:
    """The first kernel that can be searched, with the form's own defaults; None without one."""
    for name in catalogue.names():
        try:
            given = defaults(catalogue.kernel(name))
        except GreenfastError:
            continue
        values = {**given, "kernel": name, "trials": str(FIRST_TRIALS)}
        del values["own"]
        fields = tuple(
            (field, str(value))
            for field, entry in values.items()
            for value in (entry if isinstance(entry, list) else [entry])
        )
        return FirstSearch(name, given["workloads"][0], given["target"], FIRST_TRIALS, fields)
    return None


def line(store: Store, row: SearchRow) -> Line:
    """The search with its counts, best trial and progress."""
    return Line(row, store.counts(row.id), store.best(row.id), progress(row))
