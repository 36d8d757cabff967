"""Shared by all pages: the Jinja environment, rendering, and errors that look like pages."""

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
from greenfast.app.views.report_state import faults_sentence
from greenfast.app.views.stage_times import stage_time
from greenfast.app.views.values import in_order
from greenfast.app.wiring import Services
from greenfast.search.errors import GreenfastError, UsageError, unknown_name
from greenfast.search.status import ENDED
from greenfast.search.text import visible
from greenfast.search.verdict import VerdictName

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"
TITLES = {
    404: "Not found",
    409: "Not possible now",
    422: "Not valid",
    503: "A fault of greenfast or of this machine",
}
ORIGINS = {
    "sampled": "drawn by the strategy",
    "mutated": "a changed copy of one parent",
    "crossed": "a mix of two parents",
    "repaired": "the nearest valid untried point to the one that the sampler asked for",
    "preset": "a documented design of the template",
    "seeded": "given by hand",
    "submitted": "a source by its author",
}


def services_of(request: Request) -> Services:
    """The services of the application that answers the request."""
    services: Services = request.app.state.services
    return services


def render(name: str, context: dict[str, Any], status: int = 200) -> HTMLResponse:
    """A page. Browsers ask for it again each time: its content changes while a search runs."""
    text = environment().get_template(name).render(context)
    return HTMLResponse(text, status, headers={"Cache-Control": "no-cache"})


@cache
def environment() -> jinja2.Environment:
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for filter_ in (
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
        words.first_upper,
        words.brief,
        stage_time,
        faults_sentence,
    ):
        templates.filters[filter_.__name__] = filter_
    templates.filters["interval"] = interval
    templates.filters["visible"] = visible
    templates.filters["in_order"] = in_order
    templates.globals["queue_words"] = queue_words
    templates.globals["static"] = static_url
    templates.globals["origins"] = ORIGINS
    templates.globals["ended"] = ENDED
    templates.globals["verdicts"] = tuple(map(str, VerdictName))
    return templates


@cache
def static_url(name: str) -> str:
    """The URL of a static file. It names the content, so browsers may keep the file forever."""
    path = static_files()[name]
    return f"/static/{name}?v={hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"


@cache
def static_files() -> dict[str, Path]:
    """Every static file by name; Plotly comes from its installed wheel."""
    import plotly

    own = {path.name: path for path in sorted(STATIC.iterdir())}
    return {**own, "plotly.min.js": Path(plotly.__file__).parent / "package_data" / "plotly.min.js"}


def error_page(code: str, sentence: str, mend: str = "", status: int = 404) -> HTMLResponse:
    """An error in the look of every other page."""
    return render(
        "error.html",
        {
            "status": status,
            "title": TITLES.get(status, "An error"),
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
    """A filter's value, None when it is not set; UsageError with the known values."""
    if not text:
        return None
    names = [str(name) for name in known]
    if text not in names:
        error = unknown_name(kind, text, names)
        raise UsageError(error.message, code="bad_filter", mend=error.mend)
    return text
