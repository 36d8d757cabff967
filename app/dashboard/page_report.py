"""`/searches/{id}/report` and `/tunings/{id}/report`: a lab note that reads from the store."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from greenfast.app.dashboard.pages import PageRoute, render, services_of
from greenfast.app.dashboard.report_html import curves, report_file
from greenfast.app.views.report import require_report

router = APIRouter(route_class=PageRoute)


@router.get("/searches/{search_id}/report")
def search_report_page(request: Request, search_id: str) -> Response:
    return _page(request, f"/searches/{search_id}", search_id)


@router.get("/tunings/{tuning_id}/report")
def tuning_report_page(request: Request, tuning_id: str) -> Response:
    return _page(request, f"/tunings/{tuning_id}", tuning_id)


@router.get("/searches/{search_id}/report.html")
def search_report_file(request: Request, search_id: str) -> Response:
    return _file(request, search_id)


@router.get("/tunings/{tuning_id}/report.html")
def tuning_report_file(request: Request, tuning_id: str) -> Response:
    return _file(request, tuning_id)


def _file(request: Request, name: str) -> Response:
    text = report_file(require_report(services_of(request), name))
    disposition = f'attachment; filename="report_{name}.html"'
    return HTMLResponse(text, headers={"content-disposition": disposition})


def _page(request: Request, back: str, name: str) -> Response:
    report = require_report(services_of(request), name)
    return render(
        "report.html",
        {
            "report": report,
            "back": back,
            "api": f"/api/v1{back}/report",
            "link": lambda search, number: f"/searches/{search}/trials/{number}",
            "curves": curves(report),
        },
    )
