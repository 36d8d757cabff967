"""A bounded queue for handlers that run in threads: beyond it, requests are refused at once.

Handlers that use the database run in a pool of threads. When the database hangs, requests wait for
a thread. Without a bound, they and all later requests would wait for ever.
"""

from __future__ import annotations

import anyio.to_thread
from starlette.types import ASGIApp, Receive, Scope, Send

from greenfast.app.views.problems import problem_response

MOST_WAITING = 64  # requests that wait for a thread
RETRY_AFTER_S = 5
WITHOUT_THREADS = ("/healthz", "/readyz", "/login")


class Admission:
    """ASGI middleware: 503 `busy` while too many requests wait for a thread."""

    def __init__(self, app: ASGIApp, most_waiting: int = MOST_WAITING) -> None:
        self._app, self._most_waiting = app, most_waiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in WITHOUT_THREADS and self._is_full():
            response = problem_response(
                503,
                "busy",
                f"{self._most_waiting} requests or more are waiting already",
                f"try again in {RETRY_AFTER_S} s; /readyz tells whether the database answers",
            )
            response.headers["retry-after"] = str(RETRY_AFTER_S)
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_full(self) -> bool:
        waiting = anyio.to_thread.current_default_thread_limiter().statistics().tasks_waiting
        return waiting >= self._most_waiting
