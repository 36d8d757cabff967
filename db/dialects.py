"""The differences between SQLite and PostgreSQL; the rest of db/ works on both."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Double, Engine, create_engine, event, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.sql.expression import FunctionElement

from greenfast.db.faults import fault_of
from greenfast.db.timeouts import DEFAULT_TIMEOUTS, Timeouts
from greenfast.search.errors import Fault, UsageError

LARGEST_CHECKED_BYTES = 64 * 2**20  # quick_check reads about 300 MiB a second: 0.2 s at most
SQLITE_HEADER_BYTES = 100  # Database File Format, section 1.3
# Faults of which the file itself is innocent: it is neither moved away nor replaced.
NOT_THE_FILE = ("database_locked", "disk_full", "disk_error", "database_readonly")
APPLICATION_ID = 0x67726673  # "grfs", in the header of every SQLite file of ours
WRITER = "greenfast_writer"  # execution option of engines whose transactions will write
KNOWN = ("sqlite", "postgresql")
POOL_TIMEOUT_S = 10.0  # how long a thread waits for one of the pool's connections


class now_s(FunctionElement[float]):  # noqa: N801 (used like a function, as sqlalchemy.func.now)
    """Seconds since 1970 by the database's clock."""

    type = Double()
    inherit_cache = True
    name = "now_s"


@compiles(now_s, "sqlite")
def _now_sqlite(element: now_s, compiler: Any, **options: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(now_s, "postgresql")
def _now_postgresql(element: now_s, compiler: Any, **options: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"


def insert_once(session: Session, table: Any, values: Mapping[str, Any]) -> None:
    """Insert a row whose key is its content's digest, unless it is there."""
    session.execute(once(session.get_bind().dialect.name, table).values(**values))


@cache
def once(dialect: str, table: Any) -> Any:
    """The statement that inserts a row unless its key is there; its `rowcount` shows which."""
    family = {"sqlite": sqlite, "postgresql": postgresql}[dialect]
    return family.insert(table).on_conflict_do_nothing().execution_options(preserve_rowcount=True)


def one_at_a_time(session: Session, name: str) -> None:
    """Wait for other transactions of that name. SQLite has one writer at a time anyway."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(
            text("SELECT pg_advisory_xact_lock(:space, hashtext(:name))"),
            {"space": APPLICATION_ID, "name": name},
        )


def parse_url(url: str) -> URL:
    """The URL with its driver; UsageError `database_url` for any but SQLite and PostgreSQL URLs."""
    scheme, separator, rest = url.partition("://")
    if scheme in ("postgres", "postgresql"):  # SQLAlchemy's default driver would be psycopg2
        url = f"postgresql+psycopg{separator}{rest}"
    try:
        parsed = make_url(url)
        family = parsed.get_backend_name()
    except (ArgumentError, ValueError) as error:  # ValueError: the port is not a number
        raise UsageError(
            "the database URL cannot be read",
            code="database_url",  # it may hold a password
            mend="for example sqlite:////var/lib/greenfast/greenfast.sqlite",
        ) from error
    if family not in KNOWN:
        raise UsageError(
            f"no database {family!r} is known",
            code="database_url",
            mend="known: " + ", ".join(KNOWN),
        )
    if family == "sqlite" and (parsed.database or ":memory:").startswith((":memory:", "file:")):
        raise UsageError(
            "an SQLite database must be a plain file",
            code="database_url",
            mend="for example sqlite:///greenfast.sqlite",
        )
    return parsed


def make_engine(url: URL, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> Engine:
    try:
        if url.get_backend_name() == "sqlite":
            return _sqlite_engine(url, timeouts)
        return _postgresql_engine(url, timeouts)
    except (ImportError, NoSuchModuleError) as error:
        raise UsageError(
            f"the driver for {url.get_backend_name()} is not installed",
            code="database_driver",
            mend="pip install 'psycopg[binary]'",
        ) from error


def has_one_writer(engine: Engine) -> bool:
    """Whether one transaction writes at a time, and others wait for it."""
    return engine.dialect.name == "sqlite"


def reader_options(engine: Engine) -> dict[str, str]:
    """Options that give a reading transaction one snapshot, which SQLite always does."""
    return {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}


def sqlite_path(url: URL) -> Path | None:
    """The file of an SQLite URL; None for a server."""
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def _postgresql_engine(url: URL, timeouts: Timeouts) -> Engine:
    """An engine whose waits for the server all end: connecting, executing and reading."""
    engine = create_engine(
        url,
        pool_size=5,
        max_overflow=35,
        pool_timeout=POOL_TIMEOUT_S,
        pool_pre_ping=True,
        connect_args=_libpq_parameters(url, timeouts),
    )
    if engine.driver == "psycopg":
        from greenfast.db.postgres import bounded_connection

        connection_type = bounded_connection(timeouts.statement_s + timeouts.connect_s)

        @event.listens_for(engine, "do_connect")
        def connect(dialect: Any, record: Any, positional: Any, parameters: Any) -> Any:
            return connection_type.connect(*positional, **parameters)

    return engine


def _libpq_parameters(url: URL, timeouts: Timeouts) -> dict[str, Any]:
    """Connection parameters that bound every wait. Those in the URL take precedence."""
    statement_ms = math.ceil(timeouts.statement_s * 1000)
    parameters: dict[str, Any] = {
        "connect_timeout": math.ceil(timeouts.connect_s),
        "tcp_user_timeout": statement_ms,
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
    }
    parameters = {name: value for name, value in parameters.items() if name not in url.query}
    options = url.query.get("options", "")
    options = options if isinstance(options, str) else " ".join(options)
    return {**parameters, "options": f"-c statement_timeout={statement_ms} {options}".rstrip()}


def _sqlite_engine(url: URL, timeouts: Timeouts) -> Engine:
    # The driver begins its transactions late and as readers, which then fail to become writers.
    engine = create_engine(
        url,
        pool_size=5,
        max_overflow=35,
        pool_timeout=POOL_TIMEOUT_S,
        connect_args={
            "timeout": timeouts.busy_s,
            "isolation_level": None,
            "check_same_thread": False,
        },
    )

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, record: Any) -> None:
        for pragma in ("synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(WRITER, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def sqlite_identity(path: Path, busy_s: float) -> tuple[int, str | None, int]:
    """(application id, schema revision, number of tables) of a file, without writing.

    UsageError when it is no database; Fault `database_damaged` when a file of ours fails its check.
    """
    # A read-only connection to a WAL database still creates side files, unless it is told that the
    # database is immutable. Without a log beside the database, nobody is writing it.
    log = Path(f"{path}-wal")
    quiet, modified = not log.exists(), _modified(path)
    mode = "immutable=1" if quiet else "mode=ro"
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=busy_s)
        try:
            (identity,) = connection.execute("PRAGMA application_id").fetchone()
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            names = {name for (name,) in tables}
            version = (
                connection.execute("SELECT version_num FROM alembic_version").fetchone()
                if "alembic_version" in names
                else None
            )
            damage = _damage(connection, path) if identity == APPLICATION_ID else None
        finally:
            connection.close()
    except sqlite3.Error as error:
        fault = fault_of(error)
        if quiet and log.exists():  # another process has begun to write
            return sqlite_identity(path, busy_s)
        if fault.code in NOT_THE_FILE:
            raise fault from error
        damaged = fault.code == "database_damaged"
        reason = "it is not an SQLite database, or it is damaged" if damaged else fault.message
        raise UsageError(
            f"{path} cannot be read: {reason}",
            code="database_unreadable",
            mend="name another file, or move this one away",
        ) from error
    if damage is not None:
        if _modified(path) != modified:  # the result means nothing if the file changed
            return sqlite_identity(path, busy_s)
        raise Fault(
            f"the database {path} is damaged: {damage}",
            code="database_damaged",
            mend="restore it from a backup copy, or delete it with its -wal and -shm files "
            "to start with an empty database",
        )
    return identity, version[0] if version else None, len(names)


def sqlite_columns(engine: Engine) -> set[tuple[str, str]]:
    """(table, column) of every column."""
    query = "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c"
    with engine.connect() as connection:
        return {(table, column) for table, column in connection.exec_driver_sql(query)}


def _modified(path: Path) -> tuple[tuple[int, int] | None, ...]:
    """Sizes and times that change whenever the database or its log is written."""
    states: list[tuple[int, int] | None] = []
    for file in (path, Path(f"{path}-wal")):
        try:
            status = file.stat()
        except FileNotFoundError:
            states.append(None)
        else:
            states.append((status.st_size, status.st_mtime_ns))
    return tuple(states)


def _damage(connection: sqlite3.Connection, path: Path) -> str | None:
    """The first defect that SQLite's quick check finds. Of a large file it checks the length."""
    if path.stat().st_size <= LARGEST_CHECKED_BYTES:
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        return None if result == "ok" else " ".join(result.split())
    (pages,), (page_bytes,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
    )
    missing_bytes = pages * page_bytes - path.stat().st_size
    if missing_bytes > 0 and not Path(f"{path}-wal").exists():  # a log may hold the pages
        return f"{missing_bytes} bytes are missing at its end"
    return None


def sqlite_use_wal(engine: Engine, busy_s: float) -> None:
    """Turn write-ahead logging on; UsageError if the file system cannot."""
    deadline = time.monotonic() + busy_s
    while True:  # SQLite does not wait by itself when two processes switch at once
        raw = engine.raw_connection()
        try:
            mode = raw.execute("PRAGMA journal_mode").fetchone()[0]
            if mode != "wal":
                mode = raw.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if fault_of(error).code != "database_locked" or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
            continue
        finally:
            raw.close()
        if mode != "wal":
            raise UsageError(
                "the file system of the database does not support write-ahead logging",
                code="database_unreadable",
                mend="put the database on a local disk",
            )
        return


def sqlite_mark(connection: Connection) -> None:
    connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")


def sqlite_backup(path: Path, copy: Path, busy_s: float) -> None:
    """Make a consistent copy, also during writes."""
    source, target = sqlite3.connect(path, timeout=busy_s), sqlite3.connect(copy)
    try:
        target.execute("PRAGMA synchronous=FULL")
        source.backup(target)
    finally:
        source.close()
        target.close()


def server_identity(engine: Engine) -> tuple[str | None, bool, int]:
    """(schema revision, whether our tables are there, number of tables) of a server's database."""
    with engine.connect() as connection:
        names = set(
            connection.scalars(
                text(
                    "SELECT table_name FROM information_schema.tables "
                    "WHERE table_schema = current_schema()"
                )
            )
        )
        revision = (
            connection.scalar(text("SELECT version_num FROM alembic_version"))
            if "alembic_version" in names
            else None
        )
        return revision, {"searches", "trials"} <= names, len(names)


def lock_schema(connection: Connection) -> None:
    """Let one process at a time create or migrate. SQLite's write transaction does so already."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({APPLICATION_ID})"))
