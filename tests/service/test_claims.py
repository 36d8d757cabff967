"""Coordination between real processes: races, kill -9, a worker that comes back after its lease."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import store_values as values

from greenfast.app.service.worker import Patience, Stop, StoppableSink
from greenfast.db.faults import LeaseLost
from greenfast.db.sink import StoreSink
from greenfast.db.store import Store
from greenfast.db.timeouts import Timeouts
from greenfast.search.errors import Fault
from greenfast.search.loop.sink import Control
from greenfast.search.loop.spending import Spent

ROOT = Path(__file__).resolve().parents[2]
LONGEST_WAIT_S = 60.0

RACED = 8  # searches
RACE = """
import sys
import store_values as values
from greenfast.db.store import Store
from greenfast.search.loop.sink import Ended
store = Store.open(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
while (claim := store.claim(sys.argv[2], 30.0)) is not None:
    values.run_trial(store, claim, 0)
    store.finish(claim, Ended.COMPLETED, "done")
    print(claim.search_id, flush=True)
"""

WORK = """
import sys, time
import store_values as values
from greenfast.db.store import Store
from greenfast.search.strategies.base import Proposal
store = Store.open(sys.argv[1])
claim = store.claim("first", float(sys.argv[2]))
for number in range(3):
    values.run_trial(store, claim, number)
late = values.trial(3)
store.begin(claim, 3, Proposal(late.candidate, late.sampler))
print("in flight", flush=True)
sys.stdin.readline()
try:
    store.record(claim, late, values.source(3))
    print("recorded", flush=True)
except Exception as error:
    print(type(error).__name__, error.code, flush=True)
"""

RECORD = """
import sys
import store_values as values
from greenfast.db.store import Store
store = Store.open(sys.argv[1])
claim = store.claim("writer", 3600.0)
for number in range(100_000):
    values.run_trial(store, claim, number)
    print(number, flush=True)
"""


@pytest.fixture
def url(tmp_path) -> str:
    return f"sqlite:///{tmp_path / 'store.sqlite'}"


@pytest.fixture
def store(url):
    opened = Store.open(url)
    yield opened
    opened.close()


@pytest.fixture
def start(url):
    """Starts a script as a process of its own; what is left of them is ended with the test."""
    children: list[subprocess.Popen] = []

    def starter(script: str, *arguments: str) -> subprocess.Popen:
        child = subprocess.Popen(
            [sys.executable, "-c", script, url, *arguments],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        )
        children.append(child)
        return child

    yield starter
    for child in children:
        child.kill()
        child.communicate()


def eventually(question):
    """The answer once it is not None or False."""
    deadline = time.monotonic() + LONGEST_WAIT_S
    while not (answer := question()):
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)
    return answer


@pytest.mark.slow
def test_two_workers_that_race_for_searches_claim_each_once(store, start):
    ids = [store.submit(values.plan()).id for _ in range(RACED)]
    children = [start(RACE, name) for name in ("first", "second")]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    claimed = [child.communicate()[0].split() for child in children]
    assert Counter(claimed[0] + claimed[1]) == Counter(ids)
    assert store.stats()["searches"]["completed"] == RACED
    assert {row.attempts for id_ in ids for row in store.trials(id_).items} == {1}


def test_after_kill_9_the_next_claim_finds_the_trial_pending_and_counts_the_attempt(store, start):
    search = store.submit(values.plan())
    child = start(WORK, "0.5")
    assert child.stdout.readline() == "in flight\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    claim = eventually(lambda: store.claim("second", 30.0))
    history = store.history(claim)
    assert claim.search_id == search.id and [trial.number for trial in history.trials] == [0, 1, 2]
    (pending,) = history.pending
    assert (pending.number, pending.attempts) == (3, 1)
    assert (pending.candidate, pending.sampler) == (values.candidate(3), values.proposal(3).sampler)
    values.run_trial(store, claim, 3)
    row = store.trials(search.id).items[3]
    assert (row.state, row.attempts, store.search(search.id).trials_done) == ("done", 2, 4)


@pytest.mark.slow
def test_a_worker_that_was_stopped_past_its_lease_cannot_record(store, start):
    search = store.submit(values.plan())
    child = start(WORK, "0.5")
    assert child.stdout.readline() == "in flight\n"
    child.send_signal(signal.SIGSTOP)
    claim = eventually(lambda: store.claim("second", 30.0))
    child.send_signal(signal.SIGCONT)
    output, _ = child.communicate("go on\n")
    assert output == "LeaseLost lease_lost\n"
    assert store.trial(search.id, 3).state == "running" and store.search(search.id).trials_done == 3
    assert store.search(search.id).worker == "second"
    values.run_trial(store, claim, 3)


def test_kill_9_in_the_middle_of_recording_loses_nothing_that_was_acknowledged(store, start):
    for kill in range(2):
        search = store.submit(values.plan())
        child = start(RECORD)
        acknowledged = [int(child.stdout.readline()) for _ in range(5 + 3 * kill)]
        child.send_signal(signal.SIGKILL)
        acknowledged += [
            int(line) for line in child.stdout.read().split()
        ]  # communicate() would lose what is buffered
        child.wait()
        page = store.trials(search.id, limit=500).items
        done = [row.number for row in page if row.state == "done"]
        assert done[: len(acknowledged)] == acknowledged and len(done) <= len(acknowledged) + 1
        assert len(page) - len(done) <= 1 and store.search(search.id).trials_done == len(done)
        for number in done:
            assert store.recorded(search.id, number) == values.trial(number)
        store.request_control(search.id, "cancel")


HOLD = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1].removeprefix("sqlite:///"), isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
connection.execute("ROLLBACK")
"""


@pytest.mark.parametrize("lease_s", [30.0, 0.2], ids=["within its lease", "after its lease"])
def test_a_lock_longer_than_the_busy_timeout_costs_a_worker_neither_its_claim_nor_a_trial(
    url, start, lease_s
):
    store = Store.open(url, Timeouts(busy_s=0.2))
    search = store.submit(values.plan())
    claim = store.claim("first", lease_s)
    reports: list[str] = []
    sink = StoppableSink(
        StoreSink(store, claim, lease_s), Stop(1.0), Patience(Stop(1.0), reports.append)
    )
    sink.begin([(0, values.proposal(0))])
    assert start(HOLD, "1.5").stdout.readline() == "locked\n"
    assert sink.control(Spent(1.0)) is Control.RUN
    sink.record([(values.trial(0), values.source(0))])
    assert len(reports) == 1 and "locked" in reports[0]
    row = store.search(search.id)
    assert (row.status, row.worker, row.trials_done) == ("running", "first", 1)
    assert store.history(claim).spent_s == 1.0
    store.close()


def test_a_claim_that_another_worker_took_while_the_database_was_locked_is_lost(url, start):
    store = Store.open(url, Timeouts(busy_s=0.2))
    store.submit(values.plan())
    claim = store.claim("first", 0.2)
    sink = StoppableSink(StoreSink(store, claim, 0.2), Stop(1.0))
    time.sleep(0.3)  # beyond the lease
    taken = store.claim("second", 30.0)
    assert start(HOLD, "1.0").stdout.readline() == "locked\n"
    with pytest.raises(LeaseLost):
        sink.begin([(0, values.proposal(0))])
    store.begin(taken, 0, values.proposal(0))
    store.close()


def test_a_worker_that_is_made_to_stop_does_not_wait_for_the_lock(url, start):
    store = Store.open(url, Timeouts(busy_s=0.2))
    store.submit(values.plan())
    stop = Stop(1.0)
    sink = StoppableSink(StoreSink(store, store.claim("first", 30.0), 30.0), stop)
    assert start(HOLD, "600").stdout.readline() == "locked\n"
    stop.force()
    with pytest.raises(Fault) as refused:
        sink.begin([(0, values.proposal(0))])
    assert refused.value.code == "database_locked"
    store.close()
