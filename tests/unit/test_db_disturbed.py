"""A database that is locked, read-only or on a full disk, and a copy of it at any moment."""

from __future__ import annotations

import resource
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import store_values as values
from stored_search import make, url

from greenfast.db.store import Store
from greenfast.db.timeouts import Timeouts
from greenfast.search.errors import Fault, GreenfastError

ROOT = Path(__file__).resolve().parents[2]
IMPATIENT = Timeouts(busy_s=0.2)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "data" / "store.sqlite"


def test_a_locked_database_is_a_fault_that_says_so(path):
    make(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    store = Store.open(url(path), IMPATIENT)
    assert len(store.searches().items) == 1, "readers do not wait for a writer"
    with pytest.raises(Fault) as locked:
        store.submit(values.plan())
    assert locked.value.code == "database_locked" and locked.value.mend
    holder.execute("ROLLBACK")
    store.submit(values.plan())
    store.close()
    holder.close()


def test_a_database_that_is_locked_whole_cannot_be_opened(path):
    make(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("PRAGMA locking_mode=EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    holder.execute("UPDATE searches SET name = name")
    with pytest.raises(GreenfastError) as locked:
        Store.open(url(path), IMPATIENT)
    assert locked.value.code == "database_locked"
    holder.execute("COMMIT")
    holder.close()


def test_a_read_only_database_is_a_fault_and_its_rows_can_be_read(path):
    make(path)
    store = Store.open(url(path))
    with store._database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA query_only=ON")
    with pytest.raises(Fault) as refused:
        store.submit(values.plan())
    assert refused.value.code == "database_readonly"
    assert len(store.searches().items) == 1
    store.close()


@pytest.mark.parametrize("has_log", [True, False])
def test_a_full_disk_is_named_also_to_those_who_only_read_and_the_file_is_not_blamed(path, has_log):
    make(path)
    if has_log:  # as a killed process leaves it
        Path(f"{path}-wal").touch()
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, unlimited[1]))
    try:
        with pytest.raises(Fault) as full:
            Store.open(url(path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert full.value.code == "disk_full"
    Store.open(url(path)).close()


FULL = """
import resource, sys
from greenfast.db.store import Store
from greenfast.search.errors import Fault
import store_values as values
store = Store.open(sys.argv[1])
claim = store.claim("worker", 30.0)
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
recorded = 0
try:
    while True:
        values.run_trial(store, claim, recorded, values.green(recorded, 10.0, checks=100))
        recorded += 1
except Fault as fault:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(fault.code, recorded, store.counts(claim.search_id).total)
    if store.counts(claim.search_id).running:
        store.record(claim, values.trial(recorded), values.source(recorded))
    else:
        values.run_trial(store, claim, recorded)
    print(store.counts(claim.search_id).total)
"""


@pytest.mark.slow
def test_a_full_disk_is_a_fault_and_leaves_no_half_trial(path):
    make(path)
    done = subprocess.run(
        [sys.executable, "-c", FULL, url(path)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
    )
    first, second = done.stdout.splitlines() or [done.stderr, ""]
    code, recorded, counted = first.split()
    assert (code, recorded) == ("disk_full", counted) and int(recorded) > 3
    assert int(second) == int(recorded) + 1, "it goes on when there is room again"
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert (
        connection.execute(
            "SELECT (SELECT count(*) FROM evidence), "
            "(SELECT count(*) FROM trials WHERE verdict IS NOT NULL), "
            "(SELECT trials_done FROM searches)"
        ).fetchone()
        == (int(second),) * 3
    )
    connection.close()


def test_a_copy_of_database_and_log_at_any_moment_is_whole(path, tmp_path):
    """The file and its log as they are on disk, without shared memory, as after a power cut."""
    store = Store.open(url(path))
    search = store.submit(values.plan())
    claim = store.claim("worker", 30.0)
    for number in range(12):
        values.run_trial(store, claim, number)
        folder = tmp_path / f"copy{number}"
        folder.mkdir()
        for name in (path.name, f"{path.name}-wal"):
            shutil.copy(path.parent / name, folder / name)
        copy = Store.open(url(folder / path.name))
        assert copy.counts(search.id).total == number + 1
        assert copy.recorded(search.id, number) is not None
        copy.close()
    store.close()
