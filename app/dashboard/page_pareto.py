"""`/searches/{id}/pareto`: the trials that no other beats in every objective, as plot and table."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from greenfast.app.dashboard import words
from greenfast.app.dashboard.page_search import designs_of
from greenfast.app.dashboard.pages import PageRoute, render, services_of
from greenfast.app.views.pareto import UNITS, ParetoOut, figure, pareto
from greenfast.db.store import Store
from greenfast.search.strategies.objectives import OBJECTIVES

MOST_POINTS = 1_000  # SVG points that a browser draws without delay

router = APIRouter(route_class=PageRoute)


@router.get("/searches/{search_id}/pareto")
def pareto_page(
    request: Request,
    search_id: str,
    objectives: Annotated[list[str] | None, Query()] = None,
) -> Response:
    services = services_of(request)
    store = services.store
    row, report = store.search(search_id), pareto(store, search_id, objectives)
    return render(
        "pareto.html",
        {
            "row": row,
            "report": report,
            "label": label,
            "known": OBJECTIVES,
            "plot": plot(store, report),
            "figure": shown,
            "designs": designs_of(services, row),
        },
    )


def label(name: str, time_kind: str | None) -> str:
    """An objective with its unit and, of a time, its kind: `modelled time, µs`."""
    if name == "time":
        return f"{time_kind or ''} time, µs".strip()
    words = {"registers": "registers per thread", "error": "largest absolute error"}
    unit = f", {UNITS[name]}" if name == "shared_memory" else ""
    return words.get(name, name.replace("_", " ")) + unit


def shown(name: str, value: float) -> str:
    """An objective's value with the digits that it has on other pages."""
    if name == "time":
        return words.significant(value)
    return words.error(value) if name == "error" else figure(name, value)


def plot(store: Store, report: ParetoOut) -> dict[str, Any]:
    """The first two objectives of the newest correct trials, and of the front."""
    axes = report.objectives[:2]
    on_front = {trial.number for trial in report.items}
    others = [
        outcome
        for outcome in store.outcomes(report.search_id, report.objectives)
        if outcome.number not in on_front
    ][-MOST_POINTS:]
    return {
        "url": f"/searches/{report.search_id}/trials/",
        "axes": [label(name, report.time_kind) for name in axes],
        "logarithmic": [name == "time" for name in axes],
        "others": [[each.number, *each.values[:2], each.template] for each in others],
        "front": [
            [trial.number, *(trial.objectives[name] for name in axes), trial.template]
            for trial in report.items
        ],
    }
