"""REST: one file a subject, put together in `api`."""

from __future__ import annotations

from fastapi import APIRouter

from greenfast.app.routes import choices, events, records, searches
from greenfast.app.views.schemas import Problem

ERRORS = {
    400: "not understood",
    401: "no token",
    403: "another origin",
    404: "no such thing",
    409: "not possible now",
    413: "too large",
    422: "a value that cannot be",
    503: "our fault",
}


def api() -> APIRouter:
    """Everything under /api/v1."""
    made = APIRouter(
        prefix="/api/v1",
        responses={
            status: {
                "model": Problem,
                "description": words,
                "content": {"application/problem+json": {}},
            }
            for status, words in ERRORS.items()
        },
    )
    for one in (choices, searches, events, records):
        made.include_router(one.router)
    return made
