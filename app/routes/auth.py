"""The guard in front of every request.

Any page in the user's browser can reach a service on loopback. So the Host must be one of ours
(against DNS rebinding), and a method with side effects must come from our own pages or from no page
(against cross-site requests). If a token is set, every request but the health checks must carry it,
as a bearer token or as the cookie that the login page sets.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from greenfast.app.routes.submissions_access import SubmitRole
from greenfast.app.settings import Settings
from greenfast.app.views.problems import SAFE_HEADERS, problem_response

COOKIE = "greenfast_session"
LARGEST_BODY_BYTES = 1_000_000
LARGEST_LOGIN_BYTES = 10_000  # anyone may send a login, and reading a form costs processor time
BODY_DEADLINE_S = 30.0
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
OPEN_PATHS = ("/healthz", "/readyz", "/login")
OPEN_PREFIXES = ("/static/",)
API_PREFIX = "/api/"
HEAD_MARK = "greenfast.head"  # in the scope of a HEAD request, which handlers answer as a GET
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")


def cookie_value(token: str) -> str:
    """The cookie that the browser keeps instead of the token itself."""
    return hmac.new(token.encode(), b"greenfast browser cookie", hashlib.sha256).hexdigest()


class Refused(Exception):
    """The guard refuses a request, with this problem."""

    def __init__(self, status: int, code: str, message: str, mend: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.mend = status, code, message, mend


class Guard:
    """ASGI middleware: checks requests, reads bodies within limits, adds safe response headers."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._token = app, settings.token
        self._submit_role = SubmitRole(settings)
        self._hosts = {*LOOPBACK_NAMES, *settings.allowed_hosts, settings.host.strip("[]").lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = with_safe_headers(send, no_store=scope["path"].startswith(API_PREFIX))
        headers = Headers(scope=scope)
        try:
            self.check_host(headers)
            self.check_origin(scope, headers)
            if not self.is_authorised(scope, headers):
                await self._ask_to_log_in(scope, receive, send)
                return
            self.check_role(scope, headers)
            if scope["method"] not in SAFE_METHODS:
                most = LARGEST_LOGIN_BYTES if scope["path"] in OPEN_PATHS else LARGEST_BODY_BYTES
                receive = replay(await read_body(headers, receive, most))
        except Refused as refused:
            response = problem_response(refused.status, refused.code, refused.message, refused.mend)
            await response(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope, send = {**scope, "method": "GET", HEAD_MARK: True}, without_body(send)
        await self._app(scope, receive, send)

    def check_host(self, headers: Headers) -> None:
        """Refuse a Host header that is not one of ours."""
        hosts = headers.getlist("host")
        name = _host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None or ("*" not in self._hosts and name not in self._hosts):
            raise Refused(
                400,
                "unknown_host",
                "this service does not answer to that Host",
                "add the name to GREENFAST_ALLOWED_HOSTS",
            )

    def check_origin(self, scope: Scope, headers: Headers) -> None:
        """Refuse requests of other sites' pages that have side effects or concern the API."""
        site = headers.get("sec-fetch-site", "none").lower()
        has_effects = scope["method"] not in SAFE_METHODS
        from_elsewhere = site not in ("none", "same-origin")
        origin = headers.get("origin")
        if has_effects and origin is not None and _origin_host(origin) != headers["host"].lower():
            from_elsewhere = True
        navigates = headers.get("sec-fetch-mode", "").lower() == "navigate" and not has_effects
        if (
            from_elsewhere
            and not navigates
            and (has_effects or scope["path"].startswith(API_PREFIX))
        ):
            raise Refused(
                403,
                "cross_origin",
                "a page of another origin may not do this",
                "use the service's own pages, or a client that sends no Origin",
            )

    def is_authorised(self, scope: Scope, headers: Headers) -> bool:
        path = scope["path"]
        if not self._token or path in OPEN_PATHS or path.startswith(OPEN_PREFIXES):
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(given.strip(), self._token):
            return True
        if self._submit_role.holds(headers):
            return True
        return _same(_cookie(headers), cookie_value(self._token))

    def check_role(self, scope: Scope, headers: Headers) -> None:
        """Refuse what the request's token is not for."""
        reads = scope["method"] in SAFE_METHODS or scope["path"] in OPEN_PATHS
        refusal = self._submit_role.refusal(scope["method"], scope["path"], headers, reads=reads)
        if refusal is not None:
            raise Refused(403, refusal.code, refusal.message, refusal.mend)

    async def _ask_to_log_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: Response
        wants_page = "text/html" in Headers(scope=scope).get("accept", "") and scope["method"] in (
            "GET",
            "HEAD",
        )
        if wants_page and not scope["path"].startswith(API_PREFIX):
            query = scope.get("query_string", b"").decode("latin-1")
            target = quote(scope["path"]) + (f"?{query}" if query else "")
            response = RedirectResponse(f"/login?next={quote(target, safe='/')}", 303)
        else:
            response = problem_response(
                401,
                "unauthorised",
                "a token is needed here",
                "send `Authorization: Bearer TOKEN`, or log in at /login",
            )
            response.headers["www-authenticate"] = "Bearer"
        await response(scope, receive, send)


def _host_name(host: str) -> str | None:
    """The name in a Host header, without port and brackets; None when it is malformed."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    return (
        parts.hostname.lower()
        if parts.hostname and parts.netloc == host and "@" not in host
        else None
    )


def _origin_host(origin: str) -> str | None:
    """Host and port of an Origin header; None when it is not a URL."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def _cookie(headers: Headers) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""


async def read_body(headers: Headers, receive: Receive, most_bytes: int) -> bytes:
    """The whole body; Refused when it is too large or late."""
    announced = headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > most_bytes:
        raise _too_large(most_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_DEADLINE_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return b""
                body += message.get("body", b"")
                if len(body) > most_bytes:
                    raise _too_large(most_bytes)
                if not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        raise Refused(
            408, "body_timeout", f"the body did not arrive within {BODY_DEADLINE_S:g} s"
        ) from None


def _too_large(most_bytes: int) -> Refused:
    return Refused(413, "body_too_large", f"a body may have at most {most_bytes:,} bytes")


def replay(body: bytes) -> Receive:
    """A `receive` that returns the body that was read, then waits like any other."""
    sent = asyncio.Event()

    async def receive() -> Message:
        if not sent.is_set():
            sent.set()
            return {"type": "http.request", "body": body, "more_body": False}
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    return receive


def with_safe_headers(send: Send, *, no_store: bool) -> Send:
    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SAFE_HEADERS.items():
                headers[name] = value
            if no_store:
                headers.setdefault("cache-control", "no-store")
        await send(message)

    return send_with


def without_body(send: Send) -> Send:
    """The answer to HEAD: the headers of GET without its body."""

    async def send_headers(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return send_headers
