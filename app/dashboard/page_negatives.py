"""`/negatives`: ideas that were tried and did not help, with the scope in which that holds."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from greenfast.app.dashboard.pages import PageRoute, one_of, render, services_of
from greenfast.search.verdict import Reason

PAGE = 50

router = APIRouter(route_class=PageRoute)


@router.get("/negatives")
def negatives_page(
    request: Request, kernel: str = "", reason: str = "", search: str = "", cursor: str = ""
) -> Response:
    services = services_of(request)
    kernels = services.catalogue.names()
    if search:
        services.store.search(search)
    filters = {
        "kernel": one_of("kernel", kernel, kernels),
        "reason": one_of("reason", reason, Reason),
        "search": search or None,
    }
    page = services.store.negatives(
        kernel=filters["kernel"],
        reason=filters["reason"],
        search_id=filters["search"],
        limit=PAGE,
        cursor=cursor or None,
    )
    return render(
        "negatives.html",
        {
            "page": page,
            "filters": filters,
            "kernels": kernels,
            "reasons": list(Reason),
            "paged": bool(cursor),
        },
    )
