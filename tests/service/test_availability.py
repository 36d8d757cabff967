"""/healthz answers under every load, and an unfinished request blocks nobody."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import threading
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from service_home import axpy, until

from greenfast.app.routes.health import readyz
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services
from greenfast.db.store import Store
from greenfast.search.errors import Fault

WRITES = 120  # more than threads and waiting places together
HALF_SENT = 300


def get(url: str) -> httpx.Response:
    return httpx.get(url, trust_env=False, timeout=5)


def test_healthz_answers_while_writes_wait_for_a_lock_and_more_are_refused(home):
    _, url = home.serve("--workers", "0")
    lock = sqlite3.connect(home.data / "greenfast.sqlite3", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    answers: list[httpx.Response] = []

    def write() -> None:
        answers.append(
            httpx.post(f"{url}/api/v1/searches", json=axpy(), trust_env=False, timeout=60)
        )

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

    assert asyncio.run(scene())["status"] == "ready"
    services.close()


def test_half_sent_requests_are_closed_and_healthz_answers_meanwhile(home):
    _, url = home.serve("--workers", "0", GREENFAST_REQUEST_TIMEOUT_S="2")
    address = (urlsplit(url).hostname, urlsplit(url).port)
    with ExitStack() as opened:
        sockets = [
            opened.enter_context(socket.create_connection(address)) for _ in range(HALF_SENT)
        ]
        for half in sockets:
            half.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n")
        assert get(f"{url}/healthz").json() == {"status": "ok"}
        for half in sockets:
            half.settimeout(30)
            text = b"".join(iter(lambda half=half: half.recv(4096), b""))
            assert text.startswith(b"HTTP/1.1 408 ")


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
