"""One search as server-sent events: `progress`, `trial`, and `end` once.

The database is polled, because other processes write it: one cheap row a look, more only when that row changed. The id
of a `trial` event is its number, so a reader that was cut off goes on where it was (`Last-Event-ID`).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from app.progress import search_detail
from app.routes.access import TheServices, TheStore
from app.schemas import TrialOut
from app.wiring import Services
from db.rows import SearchRow, TrialRow
from db.store import Store
from search.errors import Fault

router = APIRouter(prefix="/searches", tags=["searches"])
POLL_S = 0.5
HEARTBEAT_S = 10.0
PAGE = 100
MOST_STREAMS = 100
ENDED = ("completed", "cancelled", "failed")
END_ID = "end"                       # a reader that comes again after the end is told not to


@router.get("/{search}/events", response_class=StreamingResponse,
            responses={200: {"content": {"text/event-stream": {}}, "description": "progress, trial, end"}})
async def events(search: str, request: Request, store: TheStore, services: TheServices,
                 last_event_id: Annotated[str | None, Header()] = None) -> Response:
    """The search's events from the first trial, or from the one after `Last-Event-ID`."""
    if last_event_id == END_ID:
        return Response(status_code=204)
    await run_in_threadpool(store.search, search)             # an unknown one is refused before the stream begins
    if services.open_streams >= MOST_STREAMS:
        raise Fault(f"{MOST_STREAMS} event streams are open", code="too_many_streams", mend="close some, or poll")
    after = int(last_event_id) if (last_event_id or "").isdecimal() else -1
    return StreamingResponse(_stream(store, search, after, services), media_type="text/event-stream",
                             headers={"cache-control": "no-store", "x-accel-buffering": "no"})


async def _stream(store: Store, search_id: str, after: int, services: Services) -> AsyncIterator[str]:
    services.open_streams += 1
    try:
        yield "retry: 2000\n\n"
        async for one in _events(store, search_id, after, services):
            yield one
    finally:
        services.open_streams -= 1


async def _events(store: Store, search_id: str, after: int, services: Services) -> AsyncIterator[str]:
    seen, quiet_since = None, time.monotonic()
    while not services.stopping.is_set():
        try:
            row = await run_in_threadpool(store.search, search_id)
            news = (row.status, row.wanted, row.trials_done)
            if news != seen:
                for trial in await run_in_threadpool(new_trials, store, search_id, after):
                    after = trial.number
                    yield event("trial", TrialOut.model_validate(trial).model_dump_json(), str(after))
                detail = await run_in_threadpool(search_detail, store, search_id)
                yield event("progress", detail.model_dump_json())
                seen, quiet_since = news, time.monotonic()
            if row.status in ENDED:
                yield event("end", json.dumps(_end(row)), END_ID)
                return
        except Fault:
            pass                                              # the database is busy or away: the next look may work
        if time.monotonic() - quiet_since > HEARTBEAT_S:
            quiet_since = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(POLL_S)


def new_trials(store: Store, search_id: str, after: int) -> Sequence[TrialRow]:
    """The recorded trials with a higher number than `after`, in order."""
    found: list[TrialRow] = []
    cursor = None
    while True:
        page = store.trials(search_id, sort="number", descending=True, limit=PAGE, cursor=cursor)
        found += [one for one in page.items if one.number > after and one.state == "done"]
        if page.next_cursor is None or page.items[-1].number <= after:
            return found[::-1]
        cursor = page.next_cursor


def event(name: str, data: str, identifier: str = "") -> str:
    """One event; `data` is JSON of one line."""
    return f"event: {name}\n" + (f"id: {identifier}\n" if identifier else "") + f"data: {data}\n\n"


def _end(row: SearchRow) -> dict[str, str | None]:
    return {"id": row.id, "status": row.status, "why": row.why}
