"""Followers of one search share one look at the database."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace

import pytest
import store_values as values
from service_home import run_async
from starlette.requests import ClientDisconnect

from greenfast.app.routes.events import CountedStream, _events
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services
from greenfast.db.store import Store
from greenfast.search.loop.sink import Ended
from greenfast.search.strategies.base import Proposal

LOOKS = ("search", "counts", "trials", "best")


class CountingStore:
    """The real store; counts the calls."""

    def __init__(self, store: Store) -> None:
        self._store, self.calls = store, Counter()

    def __getattr__(self, name):
        self.calls[name] += 1
        return getattr(self._store, name)


@pytest.fixture
def services(tmp_path):
    services = Services(replace(Settings(), data=tmp_path))
    services.__dict__["_store"] = CountingStore(
        Store.open(f"sqlite:///{tmp_path / 'store.sqlite'}")
    )
    yield services
    services.close()


def begun(services, trials=3):
    """A running search with some recorded trials."""
    row = services.store.submit(values.plan())
    claim = services.store.claim("worker", 30.0)
    for number in range(trials):
        record(services, claim, number)
    return row, claim


def record(services, claim, number):
    trial = values.trial(number, values.green(number, 100.0 + number))
    services.store.begin(claim, number, Proposal(trial.candidate, trial.sampler))
    services.store.record(claim, trial, values.source(number))


async def collect(services, search_id, after=-1, started=None):
    texts = []
    async for text in _events(search_id, after, services):
        texts.append(text)
        if started is not None and text.startswith("event: progress"):
            started.set()
    return texts


def kinds(texts):
    return [text.partition("\n")[0].removeprefix("event: ") for text in texts]


def looks_of(services, followers):
    """The calls of the store for so many followers of a search that has ended."""
    row, claim = begun(services)
    services.store.finish(claim, Ended.COMPLETED, "the budget is spent")

    async def follow_all():
        return await asyncio.gather(*(collect(services, row.id) for _ in range(followers)))

    services.store.calls.clear()
    streams = run_async(follow_all())
    assert all(kinds(texts) == ["trial"] * 3 + ["progress", "end"] for texts in streams)
    return {name: services.store.calls[name] for name in LOOKS}


def test_two_followers_cost_what_one_does_and_both_hear_the_end(services):
    alone = looks_of(services, 1)
    assert (
        alone["search"] > 0 and looks_of(services, 2) == alone and looks_of(services, 20) == alone
    )
    assert services.feeds == {}


def test_a_later_follower_has_the_state_at_once_and_no_trial_is_missed(services):
    row, claim = begun(services)

    async def scene():
        first_started, second_started = asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(collect(services, row.id, started=first_started))
        await first_started.wait()
        services.store.calls.clear()
        second = asyncio.create_task(collect(services, row.id, after=0, started=second_started))
        await second_started.wait()
        assert services.store.calls["counts"] == 0  # nothing was computed for it
        record(services, claim, 3)
        services.store.finish(claim, Ended.COMPLETED, "the budget is spent")
        return await asyncio.gather(first, second)

    for texts, numbers in zip(run_async(scene()), ([0, 1, 2, 3], [1, 2, 3]), strict=True):
        trials = [json.loads(text.split("data: ")[1]) for text in texts if "event: trial" in text]
        assert [trial["number"] for trial in trials] == numbers
        assert kinds(texts)[-1] == "end"


def test_streams_of_a_search_that_is_removed_end(services):
    row = services.store.submit(values.plan())

    async def scene():
        started = asyncio.Event()
        first = asyncio.create_task(collect(services, row.id, after=2, started=started))
        await started.wait()
        services.store.remove([(row.id, None)])
        return await asyncio.gather(first, collect(services, row.id))  # it reads the database

    assert [kinds(texts) for texts in run_async(scene())] == [["progress"], []]
    assert services.feeds == {}


def test_a_stream_counts_before_its_first_line_and_no_longer_than_its_reader(services):
    """A burst of 120 readers got 108 streams, since each one counted when it had begun."""
    row, _ = begun(services, trials=0)

    async def gone(message):
        raise ConnectionResetError

    async def open_and_lose():
        stream = CountedStream(services, row.id, -1)
        counted = services.open_streams
        with pytest.raises((OSError, ClientDisconnect)):
            await stream({"type": "http", "asgi": {"spec_version": "2.4"}}, gone, gone)
        return counted

    assert run_async(open_and_lose()) == 1 and services.open_streams == 0
