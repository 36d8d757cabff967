"""Tunings: submit, list, read, control, dispatch table and bundle."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from greenfast.app.bundle.tuning import dispatch_table, tuning_bundle
from greenfast.app.routes.access import TheServices, TheStore
from greenfast.app.routes.bundling import zip_response
from greenfast.app.views.base_schemas import Page
from greenfast.app.views.query_schemas import PageQuery
from greenfast.app.views.tunings import TuningOut, TuningSubmission, tuning_out
from greenfast.search.dispatch.table import table_json

router = APIRouter(prefix="/tunings", tags=["tunings"])


@router.post("", status_code=201)
def submit(submission: TuningSubmission, response: Response, services: TheServices) -> TuningOut:
    """Queue the searches of a tuning, all or none. Every workload that does not fit is named."""
    row = services.submit_tuning(submission.request())
    response.headers["location"] = f"/api/v1/tunings/{row.id}"
    return tuning_out(row)


@router.get("")
def tunings(query: Annotated[PageQuery, Query()], store: TheStore) -> Page[TuningOut]:
    """The tunings, newest first."""
    page = store.tunings(limit=query.limit, cursor=query.cursor)
    return Page(items=[tuning_out(row) for row in page.items], next_cursor=page.next_cursor)


@router.get("/{tuning}")
def tuning(tuning: str, store: TheStore) -> TuningOut:
    """The tuning with its workloads and searches."""
    return tuning_out(store.tuning(tuning))


@router.get("/{tuning}/dispatch")
def dispatch(tuning: str, services: TheServices) -> dict[str, Any]:
    """The table that picks a kernel for a shape; 409 `tuning_not_complete` before the end."""
    table, _ = dispatch_table(services, services.store.tuning(tuning))
    return table_json(table)


@router.get(
    "/{tuning}/bundle",
    response_class=Response,
    responses={200: {"content": {"application/zip": {}}, "description": "the zip file"}},
)
def download(tuning: str, services: TheServices) -> Response:
    """The kernels and the table that picks among them; `greenfast docs bundle` has the format."""
    return zip_response(lambda: tuning_bundle(services, tuning))


@router.post("/{tuning}/{wanted}")
def control(
    tuning: str, wanted: Literal["pause", "resume", "cancel"], store: TheStore
) -> TuningOut:
    """Pause, resume or cancel every search that has not ended."""
    return tuning_out(store.control_tuning(tuning, wanted))
