"""REST errors as application/problem+json: one sentence and a stable code, no internals."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from greenfast.app.views.base_schemas import Problem, WrongField
from greenfast.app.views.log_pauses import LogPauses
from greenfast.app.views.request_schemas import request_field
from greenfast.app.views.validation import FORM, FORM_PATH, refusals_of
from greenfast.search.errors import Fault, GreenfastError
from greenfast.search.text import one_line, shortened, visible

log = logging.getLogger("greenfast")
NOT_FOUND = (
    "unknown_search",
    "unknown_trial",
    "unknown_source",
    "unknown_tuning",
    "no_best",
    "no_ablation",
    "no_explanation",
    "no_trials",
)
CONFLICT = (
    "bad_transition",
    "kernel_changed",
    "not_confirmed",
    "not_compared",
    "not_measured",
    "tuning_not_complete",
    "no_kernel",
    "jobs_busy",
    "search_running",
    "search_not_ended",
    "search_of_tuning",
    "trial_kept",
)
HTTP_CODES = {404: "unknown_path", 405: "bad_method", 400: "bad_request"}
LONGEST_QUOTE = 300
LONGEST_SENTENCE = 1000  # characters: of a request's megabyte, a refusal repeats this much
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
CONTROL_PATH = re.compile(r"/api/v1/(?:searches|tunings)/[^/]+/[^/]+")
# The last parts of such paths that accept POST.
CONTROLS = ("pause", "resume", "cancel", "confirm", "ablation")
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
SAFE_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def problem_response(
    status: int, code: str, message: str, mend: str = "", errors: Sequence[WrongField] = ()
) -> JSONResponse:
    problem = Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        detail=shortened(one_line(message), LONGEST_SENTENCE),
        code=code,
        mend=one_line(mend),
        errors=list(errors),
    )
    return JSONResponse(
        problem.model_dump(),
        status,
        {**SAFE_HEADERS, "cache-control": "no-store"},
        media_type="application/problem+json",
    )


def wrong_field(field: str, code: str, message: str, mend: str) -> WrongField:
    sentence = shortened(one_line(message), LONGEST_SENTENCE)
    return WrongField(
        field=visible(field)[:LONGEST_QUOTE], detail=sentence, code=code, mend=one_line(mend)
    )


def _wrong_fields(error: GreenfastError) -> list[WrongField]:
    return [
        wrong_field(request_field(each.field), each.code, each.message, each.mend)
        for each in (error, *error.also)
        if each.field
    ]


def status_of(error: GreenfastError, path_names: Sequence[str] = ()) -> int:
    """An unknown thing is 404 when the URL names it, and 422 when the body or the query does."""
    if isinstance(error, Fault):
        return 503
    named_by_url = error.code.removeprefix("unknown_") in path_names and error.code.startswith(
        "unknown_"
    )
    if error.code in NOT_FOUND or named_by_url:
        return 404
    return 409 if error.code in CONFLICT else 422


def add_problem_handlers(app: FastAPI) -> None:
    pauses = LogPauses()

    @app.exception_handler(GreenfastError)
    async def ours(request: Request, error: GreenfastError) -> JSONResponse:
        status = status_of(error, tuple(request.path_params))
        response = problem_response(
            status, error.code, error.message, error.mend, _wrong_fields(error)
        )
        if status == 503:
            if (more := pauses.due(error.code)) is not None:
                log.error("%s: %s%s", error.code, one_line(error), more)
            response.headers["retry-after"] = "5"
        return response

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first, *others = refusals_of(error, request.scope.get("route"))
        fields = [
            wrong_field(each.field, each.code, each.sentence, each.mend)
            for each in (first, *others)
            if each.field
        ]
        return problem_response(first.status, first.code, first.sentence, first.mend, fields)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        code = HTTP_CODES.get(error.status_code, "http_error")
        sentence, mend = http_words(request, error)
        response = problem_response(error.status_code, code, sentence, mend)
        response.headers.update(error.headers or {})
        if error.status_code == 405:
            response.headers["allow"] = ", ".join(allowed_methods(request))
        return response

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> JSONResponse:
        return problem_response(
            500, "internal_error", "a bug of greenfast; the service's log has its traceback"
        )


def allowed_methods(request: Request) -> list[str]:
    """The methods of all routes at this path. Starlette names only the first route's."""
    path = request.scope["path"]
    methods = []
    for method in METHODS:
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": [],
            "root_path": request.scope.get("root_path", ""),
        }
        if any(route.matches(dict(scope))[0] is Match.FULL for route in request.app.router.routes):
            methods.append(method)
    last = path.rpartition("/")[2]
    if "POST" in methods and CONTROL_PATH.fullmatch(path) and last not in CONTROLS:
        methods.remove("POST")
    return [methods[0], "HEAD", *methods[1:]] if "GET" in methods else methods


def http_words(request: Request, error: HTTPException) -> tuple[str, str]:
    """A sentence in place of Starlette's phrases, and what would be correct."""
    path = request.url.path[:LONGEST_QUOTE]
    match error.status_code:
        case 404:
            return f"there is no path {path}", "/api/v1/openapi.json lists the paths"
        case 405:
            allowed = ", ".join(allowed_methods(request))
            return f"{request.method[:20]} is not possible at {path}", f"allowed: {allowed}"
        case 400:  # FastAPI hides why: bytes that are not UTF-8, or too many brackets
            wanted = "one JSON object in UTF-8, nested a few levels"
            return "the body cannot be read", f"send {FORM if path == FORM_PATH else wanted}"
    return str(error.detail), ""
