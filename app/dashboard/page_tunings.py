"""`/tunings` and `/tunings/{id}`: tunings with their searches and the table that picks a kernel."""

from __future__ import annotations

from typing import cast

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from greenfast.app.bundle.tuning import ServedKernel, dispatch_table
from greenfast.app.dashboard.page_search import designs_of
from greenfast.app.dashboard.pages import PageRoute, one_of, render, services_of
from greenfast.db.searches import Wanted
from greenfast.search.dispatch.table import LIBRARY
from greenfast.search.errors import GreenfastError
from greenfast.search.status import SearchStatus

PAGE = 50
ACTIVE = (SearchStatus.RUNNING, SearchStatus.QUEUED)
CONTROLS = {
    SearchStatus.QUEUED: ("pause", "cancel"),
    SearchStatus.RUNNING: ("pause", "cancel"),
    SearchStatus.PAUSED: ("resume", "cancel"),
    SearchStatus.FAILED: ("resume",),
}

router = APIRouter(route_class=PageRoute)


@router.get("/tunings")
def tunings_page(request: Request, cursor: str | None = None) -> Response:
    page = services_of(request).store.tunings(limit=PAGE, cursor=cursor or None)
    return render("tunings.html", {"tunings": page.items, "next_cursor": page.next_cursor})


@router.get("/tunings/{tuning_id}")
def tuning_page(request: Request, tuning_id: str) -> Response:
    services = services_of(request)
    tuning = services.store.tuning(tuning_id)
    table, why = None, ""
    kernels: tuple[ServedKernel, ...] = ()
    if tuning.status == SearchStatus.COMPLETED:
        try:
            table, kernels = dispatch_table(services, tuning)
        except GreenfastError as error:
            why = str(error)
    return render(
        "tuning.html",
        {
            "tuning": tuning,
            "table": table,
            "kernels": kernels,
            "library": LIBRARY,
            "design_of": lambda each: designs_of(services, each.search).of(
                each.trial.template, each.trial.parameters
            ),
            "why": why,
            "controls": CONTROLS.get(SearchStatus(tuning.status), ()),
            "refresh_s": 3 if tuning.status in ACTIVE else None,
        },
    )


@router.post("/tunings/{tuning_id}/control")
async def request_control(request: Request, tuning_id: str) -> Response:
    """Pause, resume or cancel, then back to the page."""
    form = await request.form(max_files=0, max_fields=5)
    store = services_of(request).store
    wanted = one_of("control", str(form.get("wanted", "")), ("pause", "resume", "cancel"))
    if wanted is not None:
        await run_in_threadpool(store.control_tuning, tuning_id, cast(Wanted, wanted))
    return RedirectResponse(f"/tunings/{tuning_id}", 303)
