"""Threads of one process write in turn: none is refused because others were luckier."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import store_values as values
from sqlalchemy import event

from greenfast.db.store import Store
from greenfast.db.timeouts import Timeouts
from greenfast.search.errors import Fault

WRITERS, WRITES = 12, 4


@pytest.fixture
def store(tmp_path, request):
    store = Store.open(f"sqlite:///{tmp_path / 'store.sqlite'}", Timeouts(busy_s=request.param))
    yield store
    store.close()


@pytest.mark.parametrize("store", [0.2], indirect=True)
def test_a_thread_that_waits_too_long_is_told_who_writes(store):
    with store._database.writing(), ThreadPoolExecutor(1) as pool:
        refused = pool.submit(store.submit, values.plan()).exception()
    assert isinstance(refused, Fault) and refused.code == "database_busy"
    assert "other requests of this process" in refused.message
    assert store.submit(values.plan()).status == "queued"


@pytest.mark.parametrize("store", [60.0], indirect=True)
def test_no_thread_asks_for_the_databases_lock_while_another_has_it(store):
    """SQLite's own waiting is unfair: it looks again at intervals and may meet others each time."""
    writing, met, counting = 0, [], threading.Lock()

    @event.listens_for(store._database.engine, "before_cursor_execute")
    def asks(connection, cursor, statement, *rest):
        nonlocal writing
        if statement == "BEGIN IMMEDIATE":
            with counting:
                met.append(writing)
                writing += 1

    @event.listens_for(store._database.engine, "commit")
    def done(connection):
        nonlocal writing
        with counting:
            writing -= 1

    def write(number):
        for _ in range(WRITES):
            store.worker_seen(f"worker {number}")

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(WRITERS)))
    assert met == [0] * (WRITERS * WRITES)
