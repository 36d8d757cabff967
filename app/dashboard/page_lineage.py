"""`/searches/{id}/trials/{n}/lineage`: the ancestors of a candidate, generation by generation."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from greenfast.app.dashboard.pages import PageRoute, render, services_of
from greenfast.app.views.lineage import lineage

router = APIRouter(route_class=PageRoute)


@router.get("/searches/{search_id}/trials/{number}/lineage")
def lineage_page(request: Request, search_id: str, number: int) -> Response:
    store = services_of(request).store
    return render(
        "lineage.html",
        {"row": store.search(search_id), "lineage": lineage(store, search_id, number)},
    )
