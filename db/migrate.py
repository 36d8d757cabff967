"""Opening a database: refuse a foreign or newer one unwritten, create or migrate any other."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Engine, inspect
from sqlalchemy.engine import URL, Connection

from greenfast.db import dialects
from greenfast.db.faults import translated
from greenfast.db.models import REVISION, Base
from greenfast.db.timeouts import DEFAULT_TIMEOUTS, Timeouts
from greenfast.search.errors import Fault, UsageError

if TYPE_CHECKING:  # alembic is slow to import, and only a migration needs it
    from alembic.config import Config

MIGRATIONS = Path(__file__).parent / "migrations"
START_ANEW = (
    "restore the file from a backup, or delete it with its -wal and -shm files to start with "
    "an empty database"
)


def prepare(url: URL, engine: Engine, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
    """Check, then create or migrate.

    UsageError: database_newer, database_not_ours, database_unreadable.
    Fault: database_damaged, database_locked, disk_full.
    """
    path = dialects.sqlite_path(url)
    if path and _is_new(path):
        with translated():
            _create(path, url, timeouts)
    revision = _check_file(path, timeouts.busy_s) if path else _check_server(engine)
    with translated():
        if revision is not None and revision != REVISION and path:
            _back_up(path, revision, timeouts.busy_s)
        if path:
            dialects.sqlite_use_wal(engine, timeouts.busy_s)
        if revision != REVISION:
            with engine.execution_options(**{dialects.WRITER: True}).begin() as connection:
                upgrade(connection)
        if path:
            _require_columns(path, engine)


def _require_columns(path: Path, engine: Engine) -> None:
    """Fault `database_damaged` when somebody removed what statements name."""
    wanted = {
        (table.name, column.name)
        for table in Base.metadata.sorted_tables
        for column in table.columns
    }
    missing = sorted(wanted - dialects.sqlite_columns(engine))
    if missing:
        table, column = missing[0]
        raise _damaged(path, f"there is no column {column} in a table {table}")


def _damaged(path: Path, why: str) -> Fault:
    return Fault(f"the database {path} is damaged: {why}", code="database_damaged", mend=START_ANEW)


def upgrade(connection: Connection, to: str = REVISION) -> None:
    """Run the migrations inside the connection's transaction.

    Does nothing if another process has just run them.
    """
    from alembic import command

    dialects.lock_schema(connection)
    if not inspect(connection).has_table("alembic_version") and connection.dialect.name == "sqlite":
        dialects.sqlite_mark(connection)
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, to)


def _is_new(path: Path) -> bool:
    """Whether there is no database; UsageError when only the log of a lost one is left."""
    left = [file for file in (Path(f"{path}-wal"), Path(f"{path}-journal")) if file.exists()]
    if path.exists():  # tested after its side files, because another process may create them all
        return False
    if left:
        raise UsageError(
            f"the database {path} is missing, but its log {left[0].name} is still there",
            code="database_unreadable",
            mend=START_ANEW,
        )
    return True


def _create(path: Path, url: URL, timeouts: Timeouts) -> None:
    """Create a database under a draft name, then rename it, so that it is never half made.

    If several processes do so at once, the file of the first is kept.
    """
    _make_folder(path)
    with _draft_of(path) as draft:
        engine = dialects.make_engine(url.set(database=str(draft)), timeouts)
        try:
            dialects.sqlite_use_wal(engine, timeouts.busy_s)
            with engine.execution_options(**{dialects.WRITER: True}).begin() as connection:
                upgrade(connection)
        finally:
            engine.dispose()  # the last connection writes the log into the file and deletes it
        _publish(draft, path)


@contextmanager
def _draft_of(path: Path) -> Iterator[Path]:
    """A name of this process alone for a database that `path` names later."""
    draft = path.with_name(f".{path.name}.new-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        yield draft
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{draft}{suffix}").unlink(missing_ok=True)


def _publish(draft: Path, path: Path) -> None:
    """Give the finished file its name unless another process did; durable on return."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        if not path.exists():
            draft.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _check_file(path: Path, busy_s: float) -> str | None:
    """The file's revision; None for a database without tables."""
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder, not a database", code="database_unreadable", mend="name a file"
        )
    if path.stat().st_size == 0:  # SQLite would treat it as an empty database and delete its log
        raise UsageError(
            f"the database {path} is an empty file of 0 bytes: its contents were lost",
            code="database_unreadable",
            mend=START_ANEW,
        )
    if path.stat().st_size < dialects.SQLITE_HEADER_BYTES:
        raise UsageError(
            f"{path} is not a database: it holds {path.stat().st_size} bytes",
            code="database_unreadable",
            mend="name another file, or move this one away",
        )
    identity, revision, tables = dialects.sqlite_identity(path, busy_s)
    if identity == 0 and tables == 0:
        return None
    if identity != dialects.APPLICATION_ID:
        raise UsageError(
            f"{path} is a database of another program",
            code="database_not_ours",
            mend="name another file",
        )
    if revision is None:
        raise _damaged(path, "its tables do not tell their version")
    return _check_revision(str(path), revision)


def _check_server(engine: Engine) -> str | None:
    with translated():
        revision, ours, tables = dialects.server_identity(engine)
    if tables == 0:
        return None
    if not ours or revision is None:
        raise UsageError(
            "the database holds tables of another program",
            code="database_not_ours",
            mend="name an empty database or schema",
        )
    return _check_revision("the database", revision)


def _check_revision(where: str, revision: str | None) -> str | None:
    if revision is None or revision == REVISION:
        return revision
    if revision not in _known_revisions():
        raise UsageError(
            f"{where} was written by a newer greenfast: its schema is {revision}, and this one "
            f"knows up to {REVISION}",
            code="database_newer",
            mend="use the newer greenfast, or another database",
        )
    return revision


def _known_revisions() -> set[str]:
    from alembic.script import ScriptDirectory

    return {
        revision.revision for revision in ScriptDirectory.from_config(_config()).walk_revisions()
    }


def _config() -> Config:
    """The configuration of alembic, which reads no file."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"the folder {path.parent} cannot be created: {error.strerror}",
            code="database_unreadable",
            mend="name another folder",
        ) from error


def _back_up(path: Path, revision: str, busy_s: float) -> None:
    """Keep a copy of that revision, unless another process has just migrated the database."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    copy = path.with_name(f"{path.name}.schema-{revision}.{stamp}.backup")
    try:
        with _draft_of(copy) as draft:
            dialects.sqlite_backup(path, draft, busy_s)
            if dialects.sqlite_identity(draft, busy_s)[1] == revision:
                _publish(draft, copy)
    except OSError as error:
        raise Fault(
            f"no backup copy can be made before the database is migrated: {error.strerror}",
            code="disk_full",
            mend="free some space beside the database; it was not changed",
        ) from error
