"""`/searches/{id}/parameters`: what the times depend on, and all timed trials as lines."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from greenfast.app.dashboard.pages import PageRoute, render, services_of
from greenfast.app.dashboard.parallel import parallel
from greenfast.app.views.importances import MOST_TRIALS, importances, newest

router = APIRouter(route_class=PageRoute)


@router.get("/searches/{search_id}/parameters")
def parameters_page(request: Request, search_id: str) -> Response:
    store = services_of(request).store
    row = store.search(search_id)
    trials = newest(store, search_id, MOST_TRIALS)
    report = importances(store, search_id, trials)
    drawn = {each.template: parallel(each, trials) for each in report.templates}
    return render("parameters.html", {"row": row, "report": report, "drawn": drawn})
