"""`/negatives`: ideas that were tried and did not help, with the scope in which that holds."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter, Request, Response

from greenfast.app.dashboard.pages import PageRoute, one_of, render, services_of
from greenfast.app.views.designs import Design, Designs
from greenfast.app.views.negatives import negatives_out, themes_of
from greenfast.app.wiring import Services
from greenfast.db.rows import NegativeRow
from greenfast.db.trial_filters import parameter_filters
from greenfast.search.verdict import Reason

PAGE = 50

router = APIRouter(route_class=PageRoute)


def designs_of_negatives(
    services: Services, rows: Iterable[NegativeRow]
) -> dict[tuple[str, int], Design]:
    """The designs of candidates whose template is not the baseline's: no value of it compares."""
    designs: dict[str, Designs] = {}
    by_trial = {}
    for row in rows:
        if not row.changed.startswith("template "):
            continue
        if row.search_id not in designs:
            plan = services.store.plan(row.search_id)
            designs[row.search_id] = Designs(services.catalogue, plan.kernel, plan.compiled)
        design = designs[row.search_id].of(row.template, row.parameters)
        if design.preset or design.changes:
            by_trial[row.search_id, row.number] = design
    return by_trial


@router.get("/negatives")
def negatives_page(
    request: Request,
    kernel: str = "",
    reason: str = "",
    search: str = "",
    feature: str = "",
    where: str = "",
    device: str = "",
    dtype: str = "",
    workload: str = "",
    text: str = "",
    cursor: str = "",
) -> Response:
    services = services_of(request)
    kernels = services.catalogue.names()
    if search:
        services.store.search(search)
    filters = {
        "kernel": one_of("kernel", kernel, kernels),
        "reason": one_of("reason", reason, Reason),
        "search": search or None,
        "feature": feature.strip()[:100] or None,
        "where": where.strip()[:400] or None,
        "device": device.strip()[:100] or None,
        "dtype": dtype.strip()[:40] or None,
        "workload": workload.strip()[:200] or None,
        "text": text.strip()[:200] or None,
    }
    page = services.store.negatives(
        kernel=filters["kernel"],
        reason=filters["reason"],
        search_id=filters["search"],
        feature=filters["feature"],
        parameters=parameter_filters((filters["where"] or "").split()),
        device=filters["device"],
        dtype=filters["dtype"],
        workload=filters["workload"],
        text=filters["text"],
        limit=PAGE,
        cursor=cursor or None,
    )
    return render(
        "negatives.html",
        {
            "page": page,
            "designs": designs_of_negatives(services, page.items),
            "expired": {
                (row.search_id, row.number): row.expired
                for row in negatives_out(services, page.items)
            },
            "themes": themes_of(services.store, search) if search else [],
            "filters": filters,
            "kernels": kernels,
            "reasons": list(Reason),
            "paged": bool(cursor),
        },
    )
