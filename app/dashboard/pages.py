"""What all pages share: the Jinja environment, rendering, and errors that look like pages."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from greenfast.app.dashboard import words
from greenfast.app.views.confirmations import interval
from greenfast.app.views.problems import status_of
from greenfast.app.views.progress import queue_words
from greenfast.app.wiring import Services
from greenfast.search.errors import GreenfastError, UsageError, unknown_name

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"
TITLES = {404: "Not found", 409: "Not possible now", 422: "That does not fit", 503: "Our fault"}


def services_of(request: Request) -> Services:
    return request.app.state.services


def render(name: str, context: dict[str, Any], status: int = 200) -> HTMLResponse:
    """A page. It is checked again each time it is shown: what it says changes while a search runs."""
    text = environment().get_template(name).render(context)
    return HTMLResponse(text, status, headers={"Cache-Control": "no-cache"})


@cache
def environment() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for one in (
        words.time_us,
        words.ratio,
        words.error,
        words.kibibytes,
        words.count,
        words.share,
        words.seconds,
        words.significant,
        words.ago,
        words.moment,
        words.value,
        words.visible,
        words.visible_lines,
        words.first_upper,
    ):
        found.filters[one.__name__] = one
    found.filters["interval"] = interval
    found.globals["queue_words"] = queue_words
    found.globals["static"] = static_url
    return found


@cache
def static_url(name: str) -> str:
    """The URL of a static file, which changes with its content, so that browsers may keep it for good."""
    path = static_files()[name]
    return f"/static/{name}?v={hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"


@cache
def static_files() -> dict[str, Path]:
    """Every static file by name; Plotly comes from its installed wheel."""
    import plotly

    own = {path.name: path for path in sorted(STATIC.iterdir())}
    return {**own, "plotly.min.js": Path(plotly.__file__).parent / "package_data" / "plotly.min.js"}


def error_page(code: str, sentence: str, mend: str = "", status: int = 404) -> HTMLResponse:
    """What went wrong, in the look of every other page."""
    return render(
        "error.html",
        {
            "status": status,
            "title": TITLES.get(status, "That did not work"),
            "code": code,
            "sentence": sentence,
            "mend": mend,
        },
        status,
    )


class PageRoute(APIRoute):
    """A route whose errors are answered with pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except GreenfastError as error:
                status = status_of(error, tuple(request.path_params))
                return error_page(error.code, error.message, error.mend, status)
            except RequestValidationError as error:
                first = error.errors()[0]
                where = str(first["loc"][-1]) if first["loc"] else "the request"
                return error_page("bad_value", f"{where}: {first['msg']}", status=422)
            except HTTPException as error:
                return error_page("http_error", str(error.detail), status=error.status_code)

        return handle


def one_of(kind: str, text: str | None, known: Any) -> str | None:
    """A filter's value, None when it is not set; UsageError with the known ones."""
    if not text:
        return None
    names = [str(one) for one in known]
    if text not in names:
        error = unknown_name(kind, text, names)
        raise UsageError(error.message, code="bad_filter", mend=error.mend)
    return text
