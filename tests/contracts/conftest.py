"""A store on each database: SQLite, and PostgreSQL if GREENFAST_TEST_POSTGRES names one."""

from __future__ import annotations

import os
import uuid

import pytest
import store_values as values
from new_database import place_database
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from greenfast.db.store import Store
from greenfast.search.verdict import Reason, Stage

SQLITE_FILE = "store.sqlite"
POSTGRES = os.environ.get("GREENFAST_TEST_POSTGRES", "")


@pytest.fixture(params=["sqlite", "postgresql"] if POSTGRES else ["sqlite"])
def new_url(request, tmp_path):
    """The address of a database that nobody has opened yet."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / SQLITE_FILE}"
        return
    schema = f"greenfast_{uuid.uuid4().hex[:12]}"
    admin = create_engine(POSTGRES)
    with admin.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    yield (
        make_url(POSTGRES)
        .update_query_dict({"options": f"-csearch_path={schema}"})
        .render_as_string(False)
    )
    with admin.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
    admin.dispose()


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
