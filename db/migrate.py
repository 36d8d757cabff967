"""Is this database ours, and of our age? If not, it is refused unwritten; else made or brought up to date."""

from __future__ import annotations

import time
from pathlib import Path

from sqlalchemy import Engine, inspect
from sqlalchemy.engine import URL, Connection

from db import dialects
from db.faults import translated
from db.models import REVISION
from search.errors import Fault, UsageError

MIGRATIONS = Path(__file__).parent / "migrations"


def prepare(url: URL, engine: Engine) -> None:
    """Check, then create or migrate.

    UsageError: database_newer, database_not_ours, database_unreadable. Fault: database_locked, disk_full.
    """
    path = dialects.sqlite_path(url)
    revision = _check_file(path) if path else _check_server(engine)
    with translated():
        if revision is not None and revision != REVISION and path:
            _back_up(path, revision)
        if path:
            dialects.sqlite_use_wal(engine)
        if revision != REVISION:
            with engine.execution_options(**{dialects.WRITER: True}).begin() as connection:
                upgrade(connection)


def upgrade(connection: Connection, to: str = REVISION) -> None:
    """Run the migrations inside the connection's transaction. Another process may have done so meanwhile."""
    from alembic import command

    dialects.lock_schema(connection)
    if not inspect(connection).has_table("alembic_version") and connection.dialect.name == "sqlite":
        dialects.sqlite_mark(connection)
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, to)


def _check_file(path: Path) -> str | None:
    """The file's revision; None for a new one."""
    if not path.exists():
        _make_folder(path)
        return None
    if path.is_dir():
        raise UsageError(f"{path} is a folder, not a database", code="database_unreadable",
                         mend="name a file")
    if 0 < path.stat().st_size < dialects.SQLITE_HEADER_BYTES:       # SQLite would take it for an empty database
        raise UsageError(f"{path} is no database: it holds {path.stat().st_size} bytes", code="database_unreadable",
                         mend="name another file, or move this one away")
    identity, revision, tables = dialects.sqlite_identity(path)
    if identity == 0 and tables == 0:
        return None
    if identity != dialects.APPLICATION_ID:
        raise UsageError(f"{path} is a database of another program", code="database_not_ours",
                         mend="name another file")
    return _check_revision(str(path), revision)


def _check_server(engine: Engine) -> str | None:
    with translated():
        revision, ours, tables = dialects.server_identity(engine)
    if tables == 0:
        return None
    if not ours or revision is None:
        raise UsageError("the database holds tables of another program", code="database_not_ours",
                         mend="name an empty database or schema")
    return _check_revision("the database", revision)


def _check_revision(where: str, revision: str | None) -> str | None:
    if revision is None or revision == REVISION:
        return revision
    if revision not in _known_revisions():
        raise UsageError(f"{where} was written by a newer greenfast: its schema is {revision}, and this one "
                         f"knows up to {REVISION}", code="database_newer",
                         mend="use the newer greenfast, or another database")
    return revision


def _known_revisions() -> set[str]:
    from alembic.script import ScriptDirectory

    return {one.revision for one in ScriptDirectory.from_config(_config()).walk_revisions()}


def _config():
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder {path.parent} cannot be made: {error.strerror}",
                         code="database_unreadable", mend="name another folder") from error


def _back_up(path: Path, revision: str) -> None:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    copy = path.with_name(f"{path.name}.schema-{revision}.{stamp}.backup")
    try:
        dialects.sqlite_backup(path, copy)
    except OSError as error:
        raise Fault(f"no backup copy can be made before the database is migrated: {error.strerror}",
                    code="disk_full",
                    mend="free some space beside the database; it was not changed") from error
