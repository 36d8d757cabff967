"""REST: one file for each subject; `api` combines them."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from greenfast.app.routes import (
    choices,
    comparing,
    events,
    ledger,
    records,
    removing,
    searches,
    submissions,
    tunings,
)
from greenfast.app.routes.access import each_field_once, known_query_only

ERRORS = {
    400: "malformed request",
    401: "missing or wrong token",
    403: "request from another origin, or a token without the role",
    404: "not found",
    409: "not possible in the present state",
    413: "body too large",
    422: "invalid value",
    503: "fault of the service",
}
# By name: a model would be built again for each status of each path, which took more than half of a
# service's start. app/routes/submissions.py gives the model itself.
PROBLEM = {"schema": {"$ref": "#/components/schemas/Problem"}}


def api() -> APIRouter:
    """Everything under /api/v1."""
    router = APIRouter(
        prefix="/api/v1",
        dependencies=[Depends(known_query_only), Depends(each_field_once)],
        responses={
            status: {"description": words, "content": {"application/problem+json": PROBLEM}}
            for status, words in ERRORS.items()
        },
    )
    subjects = (
        comparing,
        ledger,
        choices,
        searches,
        submissions,
        tunings,
        removing,
        events,
        records,
    )
    for subject in subjects:
        router.include_router(subject.router)
    return router
