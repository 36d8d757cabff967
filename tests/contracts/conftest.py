"""A store on each database: SQLite, and PostgreSQL if GREENFAST_TEST_POSTGRES names one."""

from __future__ import annotations

import pytest
import store_values as values
from new_database import DATABASES, place_database, postgres_schema

from greenfast.db.store import Store
from greenfast.search.verdict import Reason, Stage

SQLITE_FILE = "store.sqlite"


@pytest.fixture(params=DATABASES)
def new_url(request, tmp_path):
    """The address of a database that nobody has opened yet."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / SQLITE_FILE}"
        return
    with postgres_schema() as url:
        yield url


@pytest.fixture
def url(new_url, tmp_path):
    if new_url.startswith("sqlite:"):
        place_database(tmp_path / SQLITE_FILE)
    return new_url


@pytest.fixture
def store(url):
    opened = Store.open(url)
    yield opened
    opened.close()


@pytest.fixture
def claim(store):
    store.submit(values.plan())
    return store.claim("worker", values.LEASE_S)


@pytest.fixture
def mixed(store, claim):
    """16 trials of every kind; number 15 is in flight."""
    kinds = [
        values.rejected(),
        values.rejected(Stage.COMPILE, Reason.COMPILE_ERROR),
        values.faulted(),
        values.rejected(Stage.PERFORMANCE, Reason.SLOWER),
    ]
    for number in range(15):
        wrong = number % 3 == 2 and number > 2
        verdict = kinds[number // 3 - 1] if wrong else values.green(number, 100.0 - number % 4)
        values.run_trial(
            store, claim, number, verdict, template="scalar" if number % 5 == 1 else "wmma"
        )
    store.begin(claim, 15, values.proposal(15))
    return claim.search_id
