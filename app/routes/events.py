"""One search as server-sent events: `progress`, `trial`, and `end` once.

The database is polled because other processes write it, once for all readers of a search
(app/routes/feeds.py). The id of a `trial` event is its number, so a reader that lost its connection
resumes where it was (`Last-Event-ID`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from greenfast.app.routes.access import TheServices, TheStore
from greenfast.app.routes.auth import HEAD_MARK
from greenfast.app.routes.feeds import POLL_S, State, follow
from greenfast.app.wiring import Services
from greenfast.search.errors import Fault, UsageError

router = APIRouter(prefix="/searches", tags=["searches"])
HEARTBEAT_S = 10.0
MOST_STREAMS = 100
END_ID = "end"  # a reader that reconnects after the end is told to stop


@router.get(
    "/{search}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "progress, trial, end"}},
)
async def events(
    search: str,
    request: Request,
    store: TheStore,
    services: TheServices,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """The search's events from the first trial, or from the one after `Last-Event-ID`."""
    if last_event_id == END_ID:
        return Response(status_code=204)
    await run_in_threadpool(store.search, search)  # refuses an unknown id before the stream begins
    if request.scope.get(HEAD_MARK):
        return Response(media_type="text/event-stream")
    if services.open_streams >= MOST_STREAMS:
        raise Fault(
            f"{MOST_STREAMS} event streams are open",
            code="too_many_streams",
            mend="close some, or poll",
        )
    number = re.fullmatch("[0-9]{1,18}", last_event_id or "")
    after = int(number[0]) if number else -1
    return CountedStream(services, search, after)


class CountedStream(StreamingResponse):
    """A stream that counts from the answer to its request on, before its first line is sent.

    Otherwise a burst of requests would be let in before any of them counts.
    """

    def __init__(self, services: Services, search_id: str, after: int) -> None:
        super().__init__(
            _stream(search_id, after, services),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )
        self._services = services
        services.open_streams += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._services.open_streams -= 1


async def _stream(search_id: str, after: int, services: Services) -> AsyncIterator[str]:
    yield "retry: 2000\n\n"
    async for text in _events(search_id, after, services):
        yield text


async def _events(search_id: str, after: int, services: Services) -> AsyncIterator[str]:
    with follow(services, search_id, after) as feed:
        sent: State | None = None
        while not services.stopping.is_set():
            news, state, is_closed = feed.news, feed.state, feed.is_closed
            if state is not None and state is not sent:
                try:
                    trials = await feed.trials_after(after)
                except Fault:  # the database is busy or away
                    await asyncio.sleep(POLL_S)
                    continue
                except UsageError:
                    return  # the search was removed
                for trial in trials:
                    after = trial.number
                    yield event("trial", trial.data, str(after))
                yield event("progress", state.progress)
                sent = state
                if state.end is not None:
                    yield event("end", state.end, END_ID)
                    return
            elif is_closed:
                return  # the reader reconnects
            else:
                try:
                    await asyncio.wait_for(news.wait(), HEARTBEAT_S)
                except TimeoutError:
                    yield ": still here\n\n"


def event(name: str, data: str, identifier: str = "") -> str:
    """One event; `data` is JSON of one line."""
    return f"event: {name}\n" + (f"id: {identifier}\n" if identifier else "") + f"data: {data}\n\n"
