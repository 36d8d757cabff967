"""PostgreSQL as a database: how its URL is spelt, and that no wait for it is without end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from greenfast.app.service.worker import Patience, Stop
from greenfast.db.dialects import make_engine, parse_url
from greenfast.db.session import Database
from greenfast.db.timeouts import Timeouts
from greenfast.search.errors import Fault

POSTGRES = os.environ.get("GREENFAST_TEST_POSTGRES", "")
psycopg = pytest.importorskip(
    "psycopg", reason="the optional driver of PostgreSQL is not installed"
)
needs_server = pytest.mark.skipif(not POSTGRES, reason="GREENFAST_TEST_POSTGRES names no server")
PASSWORD = "hunter2hunter2"
LONGEST_WAIT_S = 300.0


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_each_spelling_of_a_postgresql_url_uses_psycopg(scheme):
    url = parse_url(f"{scheme}://me:{PASSWORD}@db.example:5433/greenfast?sslmode=require")
    assert (url.drivername, url.host, url.port) == ("postgresql+psycopg", "db.example", 5433)
    assert (url.username, url.password, url.database) == ("me", PASSWORD, "greenfast")
    assert url.query == {"sslmode": "require"}


# In a child: without a timeout the test would hang, not fail.
OPEN = """
import sys
from greenfast.db.store import Store
from greenfast.db.timeouts import Timeouts
from greenfast.search.errors import Fault
try:
    Store.open(sys.argv[1], Timeouts(connect_s=2.0))
except Fault as fault:
    print(fault.code, fault)
"""


@pytest.mark.slow
def test_a_server_that_never_answers_is_one_sentence_after_the_connect_timeout(silent_port):
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", OPEN, f"postgres://me:{PASSWORD}@127.0.0.1:{silent_port}/greenfast"],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_WAIT_S,
    )
    assert done.stdout.startswith("database_unreachable ") and done.stdout.count("\n") == 1
    assert done.stderr == "" and PASSWORD not in done.stdout


@needs_server
def test_a_statement_that_takes_too_long_is_a_fault():
    database = Database(make_engine(parse_url(POSTGRES), Timeouts(statement_s=0.3)))
    with pytest.raises(Fault) as late, database.reading() as session:
        session.execute(text("SELECT pg_sleep(60)"))
    assert late.value.code == "database_timeout"
    database.close()


@needs_server
def test_options_of_the_url_are_kept_beside_the_timeout():
    url = parse_url(POSTGRES).update_query_dict({"options": "-c search_path=pg_catalog"})
    engine = make_engine(url, Timeouts(statement_s=7.0))
    with engine.connect() as connection:
        assert connection.scalar(text("SHOW search_path")) == "pg_catalog"
        assert connection.scalar(text("SHOW statement_timeout")) == "7s"
    engine.dispose()


class Relay:
    """A TCP relay to the server that can stop to pass data on, with every connection left open."""

    def __init__(self, host: str, port: int) -> None:
        self._target, self._silent = (host, port), threading.Event()
        self._sockets: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def silence(self) -> None:
        self._silent.set()

    def close(self) -> None:
        for opened in (self._server, *self._sockets):
            opened.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if not self._silent.is_set():
                    target.sendall(data)
            target.close()
        except OSError:
            return


@needs_server
def test_a_server_that_falls_silent_is_a_fault_and_not_a_hung_thread():
    """As with a stopped server, its kernel acknowledges all data: only our own deadline helps."""
    url = parse_url(POSTGRES)
    relay = Relay(url.host or "127.0.0.1", url.port or 5432)
    database = Database(
        make_engine(
            url.set(host="127.0.0.1", port=relay.port), Timeouts(connect_s=2.0, statement_s=0.5)
        )
    )
    faults: list[str] = []

    def ask() -> None:
        try:
            with database.reading() as session:
                session.execute(text("SELECT 1"))
                relay.silence()
                session.execute(text("SELECT 2"))
        except Fault as fault:
            faults.append(fault.code)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(LONGEST_WAIT_S)
    relay.close()
    assert faults == ["database_unreachable"]
    database.close()


@pytest.fixture
def closed_port() -> int:
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_a_running_search_waits_for_a_server_that_refuses_but_not_without_end(closed_port):
    url = parse_url(f"postgres://me:{PASSWORD}@127.0.0.1:{closed_port}/greenfast")
    database = Database(make_engine(url, Timeouts(connect_s=2.0)))
    asked: list[str] = []
    reports: list[str] = []

    def ask(answer_at: int) -> str:
        asked.append("again")
        if len(asked) == answer_at:
            return "answer"
        with database.reading() as session:
            session.execute(text("SELECT 1"))
        return "no server answers here"

    assert Patience(Stop(1.0), reports.append)(ask, 2) == "answer"
    assert len(reports) == 1 and "trying again for 30 s" in reports[0]
    with pytest.raises(Fault) as refused:
        Patience(Stop(1.0), outage_s=0.2)(ask, 1_000)
    assert refused.value.code == "database_unreachable" and len(asked) > 3
    database.close()


@needs_server
def test_a_transaction_whose_connection_is_cut_is_repeated():
    database = Database(make_engine(parse_url(POSTGRES)))
    backends: list[int] = []

    def write() -> None:
        with database.writing() as session:
            backends.append(session.scalar(text("SELECT pg_backend_pid()")))
            if len(backends) == 1:
                session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

    Patience(Stop(1.0))(write)
    assert len(set(backends)) == 2
    database.close()
