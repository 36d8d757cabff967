"""/healthz answers under every load, and an unfinished request blocks nobody."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import threading
import time
import uuid
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from service_home import axpy, children, run_async, until
from sqlalchemy.engine import make_url

from greenfast.app.routes.health import readyz
from greenfast.app.service.connections import bounded_protocol, raise_descriptor_limit
from greenfast.app.service.server import listen
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services
from greenfast.db.store import Store
from greenfast.search.errors import Fault

WRITES = 120  # more than threads and waiting places together
HALF_SENT = 300
READY_WITHIN_S = 2.0
POSTGRES = os.environ.get("GREENFAST_TEST_POSTGRES", "")
if POSTGRES:
    import psycopg


def get(url: str) -> httpx.Response:
    return httpx.get(url, trust_env=False, timeout=60)


@pytest.mark.slow
def test_healthz_answers_while_writes_wait_for_a_lock_and_more_are_refused(home):
    _, url = home.serve("--workers", "0")
    lock = sqlite3.connect(home.data / "greenfast.sqlite3", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    answers: list[httpx.Response] = []
    # One client for all threads: 120 of them, each with a TLS context of its own, would take longer
    # to make than the first write waits for the lock.
    client = httpx.Client(trust_env=False, timeout=60, limits=httpx.Limits(max_connections=WRITES))

    def write() -> None:
        answers.append(client.post(f"{url}/api/v1/searches", json=axpy()))

    threads = [threading.Thread(target=write) for _ in range(WRITES)]
    for thread in threads:
        thread.start()
    try:
        until(
            lambda: any(answer.json().get("code") == "busy" for answer in list(answers)),
            "a refusal",
        )
        assert get(f"{url}/healthz").json() == {"status": "ok"}
        refused = next(answer for answer in answers if answer.json().get("code") == "busy")
        assert refused.status_code == 503 and refused.headers["retry-after"]
        assert refused.headers["content-type"] == "application/problem+json"
        assert get(f"{url}/readyz").status_code in (
            200,
            503,
        )  # the writers may hold every connection
    finally:
        lock.execute("ROLLBACK")
        lock.close()
        for thread in threads:
            thread.join()
        client.close()
    assert {answer.status_code for answer in answers} <= {201, 503}


class HangingStore:
    """The real store, whose figures do not come before `released`."""

    def __init__(self, store: Store) -> None:
        self._store, self.released, self.looks = store, threading.Event(), 0

    def stats(self) -> dict[str, Any]:
        self.looks += 1
        self.released.wait()
        return self._store.stats()

    def close(self) -> None:
        self._store.close()


def test_readyz_does_not_wait_for_a_hanging_database_and_keeps_one_thread_only(tmp_path):
    services = Services(replace(Settings(), data=tmp_path))
    store = HangingStore(Store.open(f"sqlite:///{tmp_path / 'store.sqlite'}"))
    services.__dict__["_store"] = store

    async def scene() -> dict[str, Any]:
        for _ in range(2):
            with pytest.raises(Fault) as refused:
                await readyz(services)
            assert refused.value.code == "database_slow"
        assert store.looks == 1
        store.released.set()
        return await readyz(services)

    assert run_async(scene())["status"] == "ready"
    services.close()


@pytest.mark.parametrize("count", [HALF_SENT, pytest.param(1010, marks=pytest.mark.slow)])
def test_half_sent_requests_are_closed_and_healthz_answers_meanwhile(home, count):
    raise_descriptor_limit()  # of this process, which opens the sockets
    _, url = home.serve("--workers", "0", GREENFAST_REQUEST_TIMEOUT_S="2")
    address = (urlsplit(url).hostname, urlsplit(url).port)
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.create_connection(address)) for _ in range(count)]
        for half in sockets:
            half.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n")
        assert get(f"{url}/healthz").json() == {"status": "ok"}
        for half in sockets:
            half.settimeout(30)
            text = b"".join(iter(lambda half=half: half.recv(4096), b""))
            assert text.startswith(b"HTTP/1.1 408 ") and b"request_timeout" in text


async def reading_application(scope: Any, receive: Any, send: Any) -> None:
    """Wait for the body, however long that takes."""
    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            pass


@pytest.fixture
def reading():
    """The address of a server that reads bodies, with half a second for each."""
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(
        uvicorn.Config(
            reading_application,
            lifespan="off",
            log_level="critical",
            http=bounded_protocol(60.0, 20, body_timeout_s=0.5),
        )
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until(lambda: server.started, "the server listens")
    yield listener.getsockname()
    server.should_exit = True
    thread.join()
    listener.close()


def answer_to(address, request: bytes) -> bytes:
    with socket.create_connection(address) as client:
        client.settimeout(30)
        with suppress(OSError):  # it may be answered and closed before all is sent
            client.sendall(request)
            return b"".join(iter(lambda: client.recv(4096), b""))
    return b""


def test_a_body_that_does_not_arrive_closes_the_connection_at_its_deadline(reading):
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nab"
    assert answer_to(reading, head).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    ("chunk", "count", "status"),
    [
        (b"x", 2000, b"400"),
        (b"a line of a source", 2000, b"500"),  # was read: the application answers nothing
    ],
)
def test_a_body_in_tiny_chunks_is_refused(reading, chunk, count, status):
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    body = (b"%x\r\n%s\r\n" % (len(chunk), chunk)) * count + b"0\r\n\r\n"
    answer = answer_to(reading, head + b"transfer-encoding: chunked\r\n\r\n" + body)
    assert answer.startswith(b"HTTP/1.1 " + status) or (status == b"400" and not answer)
    assert not answer or (b"small_chunks" in answer) == (status == b"400")


def test_a_body_of_two_lengths_is_refused_with_what_follows_it(reading):
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"
    answer = answer_to(reading, head + b"content-length: 5\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1") == 1


def processes_of(server: str) -> list[int]:
    """The server's main process and its children; empty where they are not on this machine."""
    with psycopg.connect(server) as connection:
        row = connection.execute("SELECT pg_backend_pid()").fetchone()
        status = Path(f"/proc/{row[0]}/status")
        if not status.exists() or "postgres" not in status.read_text().split("\n")[0]:
            return []
        parent = int(re.search(r"^PPid:\t(\d+)", status.read_text(), re.MULTILINE)[1])
    return [parent, *children(parent)]


@pytest.mark.skipif(not POSTGRES, reason="GREENFAST_TEST_POSTGRES names no server")
def test_a_stopped_database_server_leaves_healthz_and_is_reported_by_readyz_in_time(home):
    server = make_url(POSTGRES).set(drivername="postgresql").render_as_string(False)
    if not processes_of(server):
        pytest.skip("the PostgreSQL server runs on another machine")
    schema = f"greenfast_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE SCHEMA {schema}")
        options = {"options": f"-csearch_path={schema}"}
        database = make_url(POSTGRES).update_query_dict(options).render_as_string(False)
        _, url = home.serve("--workers", "0", GREENFAST_DATABASE_URL=database)
        assert get(f"{url}/readyz").status_code == 200
        stopped = processes_of(server)
        try:
            for process in stopped:
                os.kill(process, signal.SIGSTOP)
            for _ in range(2):
                begun = time.monotonic()
                refused = get(f"{url}/readyz")
                assert time.monotonic() - begun < READY_WITHIN_S
                assert refused.status_code == 503 and refused.json()["code"] == "database_slow"
                assert get(f"{url}/healthz").json() == {"status": "ok"}
        finally:
            for process in reversed(stopped):
                os.kill(process, signal.SIGCONT)
        until(lambda: get(f"{url}/readyz").status_code == 200, "the database answers again")
        home.end_all()
        admin.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.mark.slow
def test_more_connections_than_fit_replace_those_that_wait_longest(home):
    _, url = home.serve(
        "--workers", "0", GREENFAST_REQUEST_TIMEOUT_S="60", GREENFAST_CONNECTIONS="20"
    )
    address = (urlsplit(url).hostname, urlsplit(url).port)
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.create_connection(address)) for _ in range(40)]
        for half in sockets:
            half.sendall(b"GET")
        assert get(f"{url}/healthz").json() == {"status": "ok"}
        sockets[0].settimeout(30)
        with suppress(ConnectionResetError):  # what it had sent was not read
            assert sockets[0].recv(10) == b""


@pytest.mark.slow
def test_a_client_that_does_not_read_leaves_no_traceback_when_the_service_ends(home):
    process, url = home.serve("--workers", "0")
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        deaf.connect((urlsplit(url).hostname, urlsplit(url).port))
        deaf.sendall(b"GET /static/plotly.min.js HTTP/1.1\r\nhost: localhost\r\n\r\n")
        deaf.recv(1)  # the answer has begun
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    errors = process.stderr.read()
    assert "Traceback" not in errors and "ERROR" not in errors, errors


def test_requests_that_are_none_do_not_fill_the_log(home):
    process, served = home.serve("--workers", "0")
    url = urlsplit(served)
    wrong = (b"\0 hello\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET /\r\n\r\n")
    for request in wrong * 7:
        head, _, body = answer_to((url.hostname, url.port), request).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400") and b"application/problem+json" in head
        assert json.loads(body)["code"] == "bad_request"
    upgrade = b"host: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    with socket.create_connection((url.hostname, url.port), timeout=10) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n" + upgrade)
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    log = process.stderr.read()
    assert log.count("Invalid HTTP request") == 1 and "pgrade" not in log
