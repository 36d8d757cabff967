"""Opening a database: new, older, newer, another program's, damaged, not a database."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import store_values as values
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine
from stored_search import make, url

from greenfast.db import dialects, migrate
from greenfast.db.models import REVISION, Base
from greenfast.db.store import Store
from greenfast.search.errors import Fault, GreenfastError, UsageError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "data" / "store.sqlite"


def older(path: Path) -> None:
    """A database as schema 0001 left it, with one search."""
    make(path)
    connection = sqlite3.connect(path)
    for table in ("searches", "trials"):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN environment_digest")
    for column in ("time_mode", "finding", "device_index", "stage_seconds", "machine_code"):
        connection.execute(f"ALTER TABLE trials DROP COLUMN {column}")
    for column in ("manifest_digest", "closing", "gpu_spent_s"):
        connection.execute(f"ALTER TABLE searches DROP COLUMN {column}")
    for table in (
        "ledger_notes",
        "foreign_records",
        "champions",
        "peers",
        "confirmations",
        "device_leases",
        "environments",
        "kernel_files",
        "kernel_manifests",
        "workers",
        "tuning_searches",
        "tunings",
    ):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("UPDATE alembic_version SET version_num = '0001'")
    connection.commit()
    connection.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_new_database_is_made_with_its_folder_durable_and_in_wal_mode(path):
    Store.open(url(path)).close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA application_id").fetchone() == (dialects.APPLICATION_ID,)
    connection.close()
    store = Store.open(url(path))
    with store._database.writing() as session:
        raw = session.connection().connection
        assert raw.execute("PRAGMA synchronous").fetchone() == (2,)
        assert raw.execute("PRAGMA foreign_keys").fetchone() == (1,)
    store.close()


def test_the_migrations_make_what_the_models_say(path):
    make(path)
    engine = create_engine(url(path))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
        statements = set(
            connection.exec_driver_sql(
                "SELECT sql FROM sqlite_master WHERE type = 'table'"
            ).scalars()
        )
    engine.dispose()
    checks = [
        constraint
        for table in Base.metadata.tables.values()
        for constraint in table.constraints
        if type(constraint).__name__ == "CheckConstraint"
    ]
    assert checks and all(
        any(str(check.sqltext) in statement for statement in statements) for check in checks
    )


def test_the_revision_in_the_code_is_the_newest_migration():
    assert ScriptDirectory.from_config(migrate._config()).get_current_head() == REVISION


@pytest.mark.slow
def test_processes_that_open_a_new_database_at_once_all_succeed(path):
    script = (
        "import sys; from greenfast.db.store import Store; import store_values as values\n"
        "store = Store.open(sys.argv[1]); store.submit(values.plan()); store.close()"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, url(path)],
            stderr=subprocess.PIPE,
            env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        )
        for _ in range(2)
    ]
    assert [(child.communicate()[1].decode(), child.returncode) for child in children] == [
        ("", 0)
    ] * 2
    store = Store.open(url(path))
    assert store.stats()["searches"]["queued"] == 2
    store.close()


def test_an_older_database_is_copied_then_brought_up_to_date(path):
    older(path)
    before = path.read_bytes()
    store = Store.open(url(path))
    assert len(store.searches().items) == 1
    claim = store.claim("worker", 30.0)
    store.describe(claim, {"device": "x"})
    store.close()
    (copy,) = path.parent.glob("*.backup")
    assert copy.name.startswith("store.sqlite.schema-0001.")
    connection = sqlite3.connect(copy)
    assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("0001",)
    assert connection.execute("SELECT count(*) FROM searches").fetchone() == (1,)
    connection.close()
    assert len(before) > 0 and not list(path.parent.glob("*.partial"))


def test_an_older_database_that_is_opened_at_once_is_copied_as_it_was(path):
    older(path)
    together = threading.Barrier(6)

    def opened(_: int) -> str:
        together.wait()
        store = Store.open(url(path))
        store.close()
        return "opened"

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(opened, range(6))) == ["opened"] * 6
    copies = list(path.parent.glob("*.backup"))
    assert copies and not list(path.parent.glob(".*"))
    for copy in copies:
        connection = sqlite3.connect(copy)
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("0001",)
        connection.close()


def test_a_migration_that_fails_changes_nothing(path):
    older(path)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE environments (digest TEXT)")  # in the way of migration 0002
    connection.commit()
    connection.close()
    with pytest.raises(Fault):
        Store.open(url(path))
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("0001",)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(searches)")]
    connection.close()
    assert "environment_digest" not in columns


def _newer(path: Path) -> None:
    make(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()


def _foreign(path: Path) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE searches (id TEXT)")
    connection.commit()
    connection.close()


def _foreign_wal(path: Path) -> None:
    _foreign(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()


def _marked_by_another(path: Path) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA application_id = 252006674")  # Fossil's
    connection.execute("CREATE TABLE event (x)")
    connection.commit()
    connection.close()


def _text(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("not a database at all\n" * 100)


def _one_letter(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("x")


def _torn(path: Path) -> None:
    make(path)
    path.write_bytes(path.read_bytes()[:3000])


def _folder(path: Path) -> None:
    path.mkdir(parents=True)


@pytest.mark.parametrize(
    "spoil, code",
    [
        (_newer, "database_newer"),
        (_foreign, "database_not_ours"),
        (_foreign_wal, "database_not_ours"),
        (_marked_by_another, "database_not_ours"),
        (_text, "database_unreadable"),
        (_torn, "database_unreadable"),
        (_one_letter, "database_unreadable"),
        (_folder, "database_unreadable"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_is_not_for_us_is_refused_in_one_sentence_and_left_as_it_was(path, spoil, code):
    spoil(path)
    before = contents(path.parent) if path.is_file() else None
    with pytest.raises(UsageError) as refused:
        Store.open(url(path))
    assert refused.value.code == code and refused.value.mend and "\n" not in refused.value.message
    assert before is None or contents(path.parent) == before


@pytest.mark.parametrize(
    "change, told",
    [
        ("DELETE FROM alembic_version", "version"),
        ("DROP TABLE alembic_version", "version"),
        ("ALTER TABLE searches DROP COLUMN why", "no column why in a table searches"),
    ],
)
def test_a_changed_schema_is_no_defect_of_greenfast(path, change, told):
    make(path)
    connection = sqlite3.connect(path)
    connection.execute(change)
    connection.commit()
    connection.close()
    with pytest.raises(Fault) as refused:
        Store.open(url(path))
    assert refused.value.code == "database_damaged" and told in refused.value.message


def _emptied(path: Path) -> None:
    make(path)
    path.write_bytes(b"")


def _emptied_with_log(path: Path) -> None:
    _copy_with_log(path)
    path.write_bytes(b"")


def _lost(path: Path) -> None:
    _copy_with_log(path)
    path.unlink()


def _copy_with_log(path: Path) -> None:
    """A database as a killed process leaves it: with committed rows in its log."""
    original = path.parent.with_name("original") / path.name
    store = Store.open(url(original))
    store.submit(values.plan())
    path.parent.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{original}{suffix}", f"{path}{suffix}")
    store.close()
    assert Path(f"{path}-wal").stat().st_size > 0


@pytest.mark.parametrize("lose", [_emptied, _emptied_with_log, _lost])
def test_a_database_whose_contents_were_lost_is_refused_and_its_log_is_kept(path, lose):
    lose(path)
    before = contents(path.parent)
    with pytest.raises(UsageError) as refused:
        Store.open(url(path))
    assert refused.value.code == "database_unreadable" and str(path) in refused.value.message
    assert "backup" in refused.value.mend and "-wal" in refused.value.mend
    assert contents(path.parent) == before


def _overwritten_page(path: Path) -> None:
    """Zeros over the root page of a table; header and schema can still be read."""
    make(path)
    connection = sqlite3.connect(path)
    (root,) = connection.execute(
        "SELECT rootpage FROM sqlite_master WHERE name = 'trials'"
    ).fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * page_bytes)
        file.write(bytes(page_bytes))


def _without_its_end(path: Path) -> None:
    make(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 4096)


@pytest.mark.parametrize(
    "largest_checked_bytes, damage",
    [
        (dialects.LARGEST_CHECKED_BYTES, _overwritten_page),
        (dialects.LARGEST_CHECKED_BYTES, _without_its_end),
        (0, _without_its_end),
    ],
)
def test_a_damaged_database_is_refused_when_it_is_opened(
    path, monkeypatch, largest_checked_bytes, damage
):
    monkeypatch.setattr(dialects, "LARGEST_CHECKED_BYTES", largest_checked_bytes)
    damage(path)
    before = contents(path.parent)
    with pytest.raises(GreenfastError) as refused:
        Store.open(url(path))
    assert refused.value.code in ("database_damaged", "database_unreadable")
    assert (
        str(path) in refused.value.message
        and "\n" not in refused.value.message
        and refused.value.mend
    )
    assert contents(path.parent) == before


def test_a_large_database_is_opened_without_reading_all_of_it(path, monkeypatch):
    monkeypatch.setattr(dialects, "LARGEST_CHECKED_BYTES", 0)
    make(path)
    Store.open(url(path)).close()


def test_creating_a_database_leaves_no_other_file(path):
    Store.open(url(path)).close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_database_without_tables_is_a_new_one(path):
    path.parent.mkdir()
    connection = sqlite3.connect(path)  # killed right after switching to WAL
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    make(path)


@pytest.mark.parametrize(
    "wrong, code",
    [
        ("nonsense", "database_url"),
        ("mysql://localhost/x", "database_url"),
        ("sqlite://", "database_url"),
        ("sqlite:///:memory:", "database_url"),
        ("sqlite:///file:x?uri=true", "database_url"),
        ("", "database_url"),
        ("oracle+nothing://x", "database_url"),
        ("postgresql+nothing://localhost/x", "database_driver"),
    ],
)
def test_a_wrong_url_is_refused(wrong, code):
    with pytest.raises(UsageError) as refused:
        Store.open(wrong)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "wrong",
    [
        "postgresql//me:secret@host/x",
        "postgres://me:secret@host:port/x",
        "postgres:me:secret@host/x",
    ],
)
def test_the_refusal_of_a_url_does_not_show_its_password(wrong):
    with pytest.raises(UsageError) as refused:
        Store.open(wrong)
    assert refused.value.code == "database_url" and "secret" not in str(refused.value)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError) as refused:
        Store.open(url(tmp_path / "file" / "store.sqlite"))
    assert refused.value.code == "database_unreadable"
