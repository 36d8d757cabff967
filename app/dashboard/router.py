"""All pages and their files, as one router for create_app."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from greenfast.app.dashboard import (
    page_champions,
    page_compare,
    page_kernel,
    page_ledger,
    page_lineage,
    page_negatives,
    page_new,
    page_parameters,
    page_pareto,
    page_report,
    page_search,
    page_searches,
    page_trial,
    page_tunings,
)
from greenfast.app.dashboard.pages import error_page, static_files

KEPT = "public, max-age=31536000, immutable"


class UnknownPage(APIRoute):
    """Answers browsers where no other route does; programs get application/problem+json."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        wants_page = scope["type"] == "http" and "text/html" in Headers(scope=scope).get(
            "accept", ""
        )
        reads = scope.get("method") in ("GET", "HEAD")
        if not wants_page or not reads or scope["path"].startswith("/api/"):
            return Match.NONE, {}
        return super().matches(scope)


files = APIRouter()
rest = APIRouter(route_class=UnknownPage)


@files.get("/static/{name}")
@files.head("/static/{name}")
async def static_file(request: Request, name: str) -> Response:
    """One of the static files; browsers keep it forever when its URL names its content."""
    known = static_files()
    if name not in known:
        return error_page("unknown_file", f"there is no file {name!r} here")
    path = known[name]
    # The whole file, also where a part is wanted: Starlette's refusals of parts have no code.
    scope = request.scope
    scope["headers"] = [(key, value) for key, value in scope["headers"] if key != b"range"]
    response = await StaticFiles(directory=path.parent).get_response(path.name, scope)
    response.headers["Accept-Ranges"] = "none"
    response.headers["Cache-Control"] = KEPT if request.query_params.get("v") else "no-cache"
    return response


@rest.get("/{path:path}")
def unknown_page(path: str) -> Response:
    return error_page("unknown_path", f"there is no page /{path[:200]}")


router = APIRouter(include_in_schema=False)
for part in (
    page_searches,
    page_search,
    page_trial,
    page_lineage,
    page_parameters,
    page_pareto,
    page_compare,
    page_ledger,
    page_report,
    page_new,
    page_tunings,
    page_champions,
    page_negatives,
    page_kernel,
):
    router.include_router(part.router)
router.include_router(files)
router.include_router(rest)
