"""Workers that are killed, stopped or supervised lose, repeat and leave behind nothing."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from contextlib import closing
from types import SimpleNamespace

import pytest
from patient_kernel import PLAN, add_patient_kernel
from service_home import axpy, children, is_alive, until
from slow_cases import quick_first

from greenfast.app.service import worker
from greenfast.client import Client
from greenfast.search.errors import Fault
from greenfast.search.loop.sink import Control, Ended, History

TRIALS = 3
PATIENT = {**PLAN, "budget": {"trials": TRIALS}}
# Its trials are in the emulator most of the time, so that a worker has children when it is killed.
BUSY = {
    **PATIENT,
    "kernel": "attention",
    "workloads": ["small"],
    "templates": ["scalar"],
    "budget": {"trials": 3},
}


@pytest.fixture
def home(home):
    add_patient_kernel(home)
    home.environment["GREENFAST_WINDOW"] = "1"  # no trial more than a test looks at
    return home


@pytest.fixture
def api(home):
    """The API without workers, so that a test has them in its own hands."""
    _, url = home.serve("--workers", "0")
    with Client(url) as client:
        yield client


def done(api, search_id):
    return api.search(search_id)["trials_done"]


def all_once(api, search_id, count=TRIALS):
    trials = api.trials(search_id)
    assert [trial["number"] for trial in trials] == list(range(count))
    assert all(trial["state"] == "done" for trial in trials)
    assert len({trial["candidate_digest"] for trial in trials}) == count
    return trials


@pytest.mark.slow
def test_a_killed_workers_search_is_taken_up_with_nothing_lost_or_doubled(home, api):
    search_id = api.submit(**BUSY)["id"]
    first = home.start("worker")
    until(lambda: done(api, search_id) >= 1, "a trial")
    descendants = children(first.pid)
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = {
        trial["number"]: trial["recorded_at"]
        for trial in api.trials(search_id)
        if trial["state"] == "done"
    }
    second = home.start("worker")
    assert api.wait(search_id, deadline_s=600)["status"] == "completed"
    trials = all_once(api, search_id)
    assert {
        trial["number"]: trial["recorded_at"] for trial in trials if trial["number"] in before
    } == before
    assert max(trial["attempts"] for trial in trials) <= 2
    until(
        lambda: not any(is_alive(descendant) for descendant in descendants),
        "the dead worker's children are gone",
        70,
    )
    second.send_signal(signal.SIGTERM)
    assert second.wait(30) == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_stop_gives_its_search_back_at_once(home, api, number):
    search_id = api.submit(**PATIENT)["id"]
    worker = home.start("worker", GREENFAST_LEASE_S="600")
    until(lambda: done(api, search_id) >= 1, "a trial")
    worker.send_signal(number)
    assert worker.wait(30) == 0
    assert api.search(search_id)["status"] == "queued" and "Traceback" not in worker.stderr.read()
    assert home.run("worker", "--once").code == 0
    assert {trial["attempts"] for trial in all_once(api, search_id)} == {1}


@pytest.mark.slow
def test_a_worker_keeps_its_search_when_the_database_was_locked_for_longer_than_it_waits(home, api):
    search_id = api.submit(**PATIENT)["id"]
    worker = home.start(
        "worker", "--once", GREENFAST_LEASE_S="600", GREENFAST_DATABASE_BUSY_S="0.2"
    )
    until(lambda: done(api, search_id) >= 1, "a trial")
    with closing(sqlite3.connect(home.data / "greenfast.sqlite3", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        line = worker.stderr.readline()
        while "locked" not in line:
            assert line, "the worker ended"
            line = worker.stderr.readline()
        holder.execute("ROLLBACK")
        assert worker.wait(120) == 0
        assert holder.execute("SELECT status, fence FROM searches").fetchone() == ("completed", 1)
    assert {trial["attempts"] for trial in all_once(api, search_id)} == {1}


@pytest.mark.slow
def test_pause_resume_and_cancel_reach_a_running_search(home, api):
    search_id = api.submit(**{**PATIENT, "budget": {"trials": 60}})["id"]
    home.start("worker")
    until(lambda: done(api, search_id) >= 1, "a trial")
    api.control(search_id, "pause")
    until(lambda: api.search(search_id)["status"] == "paused", "paused", 30)
    paused_at = done(api, search_id)
    assert all(trial["state"] == "done" for trial in api.trials(search_id))
    api.control(search_id, "resume")
    until(lambda: done(api, search_id) > paused_at, "it goes on", 60)
    api.control(search_id, "cancel")
    until(lambda: api.search(search_id)["status"] == "cancelled", "cancelled", 30)
    assert api.best(search_id)["source_digest"]


def test_a_preparation_is_interrupted_until_it_has_ended():
    """One that is between two compilers starts the next, which a single interrupt misses."""
    interrupts, has_ended = threading.Semaphore(0), threading.Event()

    def prepared():
        for _ in range(3):  # compilers, one after another
            interrupts.acquire()
        has_ended.set()
        raise Fault("interrupted", code="interrupted")

    result = worker._with_heartbeat(
        prepared,
        SimpleNamespace(control=lambda spent: Control.CANCEL),
        History(),
        SimpleNamespace(requested=False),
        interrupts.release,
    )
    assert result.ended is Ended.CANCELLED and has_ended.is_set()


@pytest.mark.parametrize(
    ("verb", "status"), quick_first([("cancel", "cancelled"), ("pause", "paused")], 1)
)
def test_a_cancel_and_a_pause_are_heard_while_a_target_is_prepared(
    home, api, tmp_path, verb, status
):
    compiler, compiles = tmp_path / "slow-g++", tmp_path / "compiles"
    compiler.write_text(f"""#!/bin/sh
[ "$1" = --version ] && exec g++ --version
echo $$ >> {compiles}
exec sleep 600
""")
    compiler.chmod(0o755)
    search_id = api.submit(**axpy())["id"]
    home.start("worker", GREENFAST_CXX=str(compiler))
    until(compiles.exists, "the emulator is being built")
    api.control(search_id, verb)
    row = until(lambda: (row := api.search(search_id))["status"] == status and row, status, 30)
    assert row["trials_done"] == 0 and row["why"] == f"{status} while its target was prepared"
    compilers = [int(pid) for pid in compiles.read_text().split()]
    until(lambda: not any(map(is_alive, compilers)), "the compilers are gone", 30)
    assert not list((home.data / "cache" / "emulator").glob(".fresh-*"))


def test_a_queued_search_is_paused_and_cancelled_without_a_worker(api):
    search_id = api.submit(**axpy())["id"]
    assert api.control(search_id, "pause")["status"] == "paused"
    assert api.control(search_id, "resume")["status"] == "queued"
    assert api.control(search_id, "cancel")["status"] == "cancelled"


@pytest.mark.slow
def test_two_workers_share_the_queue_and_no_search_runs_twice(home, api):
    ids = [api.submit(**axpy())["id"] for _ in range(4)]
    workers = [home.start("worker", "--once") for _ in range(2)]
    assert [worker.wait(120) for worker in workers] == [0, 0]
    for search_id in ids:
        assert {trial["attempts"] for trial in all_once(api, search_id, 3)} == {1}


@pytest.mark.slow
def test_a_search_that_cannot_start_fails_with_the_reason_and_the_next_one_runs(
    home, api, tmp_path
):
    bad = api.submit(**axpy())["id"]
    empty = tmp_path / "bin"
    empty.mkdir()
    assert home.run("worker", "--once", PATH=str(empty), GREENFAST_CXX="").code == 0
    failed = api.search(bad)
    assert failed["status"] == "failed" and "g++" in failed["why"]
    good = api.submit(**axpy())["id"]
    assert home.run("worker", "--once").code == 0 and api.search(good)["status"] == "completed"


def test_the_service_restarts_a_worker_that_died_and_its_search_goes_on(home):
    process, url = home.serve()
    worker = until(lambda: children(process.pid), "a worker")[0]
    with Client(url) as client:
        search_id = client.submit(**PATIENT)["id"]
        until(lambda: done(client, search_id) >= 1, "a trial")
        descendants = children(worker)
        os.kill(worker, signal.SIGKILL)
        until(lambda: any(child != worker for child in children(process.pid)), "another worker", 30)
        assert client.wait(search_id, deadline_s=600)["status"] == "completed"
        all_once(client, search_id)
        until(
            lambda: not any(is_alive(descendant) for descendant in descendants),
            "the dead worker's children are gone",
            70,
        )


@pytest.mark.parametrize("number", quick_first([signal.SIGKILL, signal.SIGTERM, signal.SIGINT], 1))
def test_when_the_service_ends_its_workers_end_and_the_search_waits_for_the_next(home, number):
    process, url = home.serve("--workers", "2")
    workers = until(
        lambda: len(children(process.pid)) == 2 and children(process.pid), "two workers"
    )
    with Client(url) as client:
        search_id = client.submit(**{**PATIENT, "budget": {"trials": 60}})["id"]
        until(lambda: done(client, search_id) >= 1, "a trial")
    process.send_signal(number)
    assert process.wait(30) == (-9 if number == signal.SIGKILL else 0)
    until(lambda: not any(is_alive(worker) for worker in workers), "the workers are gone", 20)
    rows = home.run("searches", "--json").json
    assert rows[0]["id"] == search_id and rows[0]["status"] == "queued"
    assert "Traceback" not in process.stderr.read()


@pytest.mark.slow
def test_an_open_event_stream_does_not_keep_the_service_from_ending(home):
    process, url = home.serve("--workers", "0")
    with Client(url) as client:
        search_id = client.submit(**axpy())["id"]
        with client._http.stream("GET", f"/api/v1/searches/{search_id}/events") as answer:
            next(answer.iter_lines())
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0


@pytest.mark.slow
def test_a_search_command_yields_to_a_worker_that_was_quicker_and_follows_it(home, api):
    home.start("worker")
    ended = home.run(
        "search", "axpy", "--template", "right", "--trials", "3", "--seed", "2", "--json"
    )
    assert ended.code == 0 and ended.json["status"] == "completed"
    all_once(api, ended.json["id"], 3)
