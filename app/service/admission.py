"""A bounded queue for handlers that run in threads: beyond it, requests are refused at once.

Handlers that use the database run in a pool of threads. When the database hangs, requests wait for
a thread. Without a bound, they and all later requests would wait for ever.
"""

from __future__ import annotations

import anyio.to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from greenfast.app.views.problems import problem_response

MOST_WAITING = 64  # requests that wait for a thread
RETRY_AFTER_S = 5
WITHOUT_THREADS = ("/healthz", "/readyz", "/login")


WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")


class Admission:
    """ASGI middleware: 503 `busy` while too many requests wait for a thread.

    A request counts from the end of its body to the end of its response, so a burst that arrives
    before any of it has reached a thread is bounded, and a client that never finishes its body
    takes no place.
    """

    def __init__(self, app: ASGIApp, most_waiting: int = MOST_WAITING) -> None:
        self._app, self._most_waiting, self._complete = app, most_waiting, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _needs_a_thread(scope["path"]):
            await self._app(scope, receive, send)
        elif self._is_full():
            response = problem_response(
                503,
                "busy",
                f"{self._most_waiting} requests or more are waiting already",
                f"try again in {RETRY_AFTER_S} s; /readyz shows whether the database answers",
            )
            response.headers["retry-after"] = str(RETRY_AFTER_S)
            await response(scope, receive, send)
        else:
            await self._counted(scope, receive, send)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_complete = scope["method"] in WITHOUT_BODY
        self._complete += is_complete

        async def receive_and_count() -> Message:
            nonlocal is_complete
            message = await receive()
            if (
                message["type"] == "http.request"
                and not message.get("more_body")
                and not is_complete
            ):
                is_complete = True
                self._complete += 1
            return message

        try:
            await self._app(scope, receive_and_count, send)
        finally:
            self._complete -= is_complete

    def _is_full(self) -> bool:
        threads = anyio.to_thread.current_default_thread_limiter().total_tokens
        return self._complete >= threads + self._most_waiting


def _needs_a_thread(path: str) -> bool:
    """Event streams last long and use no thread of the pool while they wait."""
    return path not in WITHOUT_THREADS and not path.endswith("/events")
