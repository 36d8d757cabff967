"""The login page: the browser sends the token once, then a cookie that no script can read."""

from __future__ import annotations

import asyncio
import hmac
from html import escape
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from greenfast.app.routes.auth import COOKIE, cookie_value

router = APIRouter(include_in_schema=False)
WRONG_TOKEN_DELAY_S = 0.5
COOKIE_AGE_S = 30 * 24 * 3600
# The page is self-contained: without the token, browsers get no static files.
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>greenfast: log in</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,"></head>
<body style="font: 15px/1.5 system-ui; max-width: 24rem; margin: 12vh auto; padding: 0 16px">
<main><h1 style="font-size: 22px">greenfast</h1><p{role}>{message}</p>
<form method="post" action="/login"><input type="hidden" name="next" value="{next}">
<input type="text" name="username" value="greenfast" autocomplete="username" hidden>
<label>Token
<input type="password" name="token" autocomplete="current-password" required autofocus></label>
<button>Log in</button></form></main></body></html>"""


@router.get("/login")
async def login_page(path: Annotated[str, Query(alias="next")] = "/") -> HTMLResponse:
    return _page("This service needs the token that it was started with.", path, 200)


@router.post("/login")
async def login(
    request: Request,
    token: Annotated[str, Form()],
    path: Annotated[str, Form(alias="next")] = "/",
) -> Response:
    expected = request.app.state.services.settings.token
    if not expected or not hmac.compare_digest(token.strip().encode(), expected.encode()):
        await asyncio.sleep(WRONG_TOKEN_DELAY_S)
        return _page("That is not the token.", path, 403)
    response = RedirectResponse(_own_path(path), 303)
    response.set_cookie(
        COOKIE,
        cookie_value(expected),
        max_age=COOKIE_AGE_S,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


def _page(message: str, next_path: str, status: int) -> HTMLResponse:
    return HTMLResponse(
        PAGE.format(
            message=escape(message),
            role=' role="alert"' if status >= 400 else "",
            next=escape(_own_path(next_path)),
        ),
        status,
    )


def _own_path(path: str) -> str:
    """`path` when it belongs to this service, else the first page: never another site."""
    is_own = (
        path.startswith("/")
        and not path.startswith("//")
        and path.isprintable()
        and "\\" not in path.partition("?")[0]
    )
    return path if is_own else "/"
