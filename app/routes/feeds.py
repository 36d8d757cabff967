"""Feeds of live searches: one poll serves all followers of a search.

A feed is a task that polls one search as long as it has followers. Followers read the newest state
when they can. A slow follower skips states but no trial; a new one gets the current state at once.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool

from greenfast.app.views.progress import search_detail
from greenfast.app.views.schemas import TrialOut
from greenfast.app.wiring import Services
from greenfast.db.rows import SearchRow, TrialRow
from greenfast.db.store import Store
from greenfast.search.errors import Fault, UsageError
from greenfast.search.status import ENDED, SearchStatus

POLL_S = 0.5
PAGE = 100
MOST_KEPT = 1_000  # trials in memory; a follower further behind reads them from the database


@dataclass(frozen=True)
class TrialEvent:
    """A recorded trial, ready to be sent."""

    number: int
    data: str

    @classmethod
    def of(cls, row: TrialRow) -> TrialEvent:
        return cls(row.number, TrialOut.model_validate(row).model_dump_json())


@dataclass(frozen=True)
class State:
    """The search at one moment."""

    progress: str  # SearchDetailOut as JSON
    end: str | None  # its end as JSON; None while it continues


class Feed:
    """One search, polled while it has followers."""

    def __init__(self, services: Services, search_id: str, after: int) -> None:
        self._services, self._id = services, search_id
        self._trials: deque[TrialEvent] = deque()
        self._kept_after = after  # later trials are in `_trials`, as far as they were seen
        self.followers = 0
        self.state: State | None = None
        self.is_closed = False
        self.news = asyncio.Event()  # replaced with each change
        self._task = asyncio.create_task(self._poll())

    async def trials_after(self, number: int) -> Sequence[TrialEvent]:
        """The recorded trials with a higher number, in order."""
        if number < self._kept_after:
            rows = await run_in_threadpool(new_trials, self._services.store, self._id, number)
            return [TrialEvent.of(row) for row in rows]
        return [trial for trial in self._trials if trial.number > number]

    def stop(self) -> None:
        self._task.cancel()

    async def _poll(self) -> None:
        seen: tuple[object, ...] | None = None
        try:
            while not self._services.stopping.is_set():
                try:
                    row, waiting = await run_in_threadpool(self._look)
                    state = (row.status, row.wanted, row.trials_done, waiting)
                    if state != seen:
                        await self._update(row)
                        seen = state
                    if row.status in ENDED:
                        return
                except Fault:
                    pass  # the database is busy or away: the next look may work
                except UsageError:
                    return  # the search was removed
                await asyncio.sleep(POLL_S)
        finally:
            self.is_closed = True
            self._announce()

    def _look(self) -> tuple[SearchRow, object]:
        """The search, and while it is queued who could take it."""
        store = self._services.store
        row = store.search(self._id)
        return row, (
            row.queue_position,
            store.queue_state(),
        ) if row.status == SearchStatus.QUEUED else None

    async def _update(self, row: SearchRow) -> None:
        store = self._services.store
        newest = self._trials[-1].number if self._trials else self._kept_after
        trials = await run_in_threadpool(new_trials, store, self._id, newest)
        detail = await run_in_threadpool(search_detail, store, self._id)
        self._trials += [TrialEvent.of(trial) for trial in trials]
        while len(self._trials) > MOST_KEPT:
            self._kept_after = self._trials.popleft().number
        ended = row.status in ENDED
        end = json.dumps({"id": row.id, "status": row.status, "why": row.why}) if ended else None
        self.state = State(detail.model_dump_json(), end)
        self._announce()

    def _announce(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()


@contextmanager
def follow(services: Services, search_id: str, after: int) -> Iterator[Feed]:
    """The search's feed, which starts with its first follower and stops with its last."""
    feed = services.feeds.get(search_id)
    if feed is None or feed.is_closed:
        feed = services.feeds[search_id] = Feed(services, search_id, after)
    feed.followers += 1
    try:
        yield feed
    finally:
        feed.followers -= 1
        if not feed.followers:
            feed.stop()
            if services.feeds.get(search_id) is feed:
                del services.feeds[search_id]


def new_trials(store: Store, search_id: str, after: int) -> Sequence[TrialRow]:
    """The recorded trials with a higher number than `after`, in order."""
    rows: list[TrialRow] = []
    cursor = None
    while True:
        page = store.trials(search_id, sort="number", descending=True, limit=PAGE, cursor=cursor)
        rows += [row for row in page.items if row.number > after and row.state == "done"]
        if page.next_cursor is None or page.items[-1].number <= after:
            return rows[::-1]
        cursor = page.next_cursor
