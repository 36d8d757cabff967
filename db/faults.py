"""Translates database errors into ours, by exception type and error code, never by text."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from greenfast.search.errors import Fault


class LeaseLost(Fault):
    """Another worker holds the search, or it was ended: this worker may write no more of it."""

    code = "lease_lost"


class DeviceLost(Fault):
    """Another worker took the GPU during a measurement, which may be disturbed."""

    code = "gpu_lease_lost"


# Each is (code, message, remedy).
_LOCKED = (
    "database_locked",
    "the database is locked by another process",
    "end the process that holds it, or try again",
)
_SLOW = (
    "database_timeout",
    "the database server did not finish a statement in time",
    "look for a lock or a load on the server, or raise GREENFAST_DATABASE_STATEMENT_S",
)
_FULL = (
    "disk_full",
    "the database cannot grow: the disk is full, over quota, or at a file size limit",
    "free some space; nothing that was recorded is lost",
)
_READONLY = (
    "database_readonly",
    "the database may not be written",
    "check the permissions of its file and folder",
)
_DAMAGED = ("database_damaged", "the database file is damaged", "restore it from a backup copy")
_UNREADABLE = (
    "database_unreadable",
    "the database cannot be opened",
    "check its path and permissions",
)
_DISK = (
    "disk_error",
    "the disk under the database reported an error",
    "check the disk and the kernel's log",
)
_UNREACHABLE = (
    "database_unreachable",
    "the database server does not answer, or refused the connection",
    "start it, or check the database URL",
)

# SQLite has separate codes for writes that fail with EFBIG, EDQUOT or EIO instead of ENOSPC.
# Readers need space, too: for the index of the log, the file -shm.
_SQLITE_EXTENDED = dict.fromkeys(
    (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_TRUNCATE, sqlite3.SQLITE_IOERR_SHMSIZE),
    _FULL,
)
_SQLITE = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READONLY,
    sqlite3.SQLITE_PERM: _READONLY,
    sqlite3.SQLITE_AUTH: _READONLY,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CANTOPEN: _UNREADABLE,
    sqlite3.SQLITE_IOERR: _DISK,
}
_SQLSTATE = {
    "55P03": _LOCKED,
    "40001": _LOCKED,
    "40P01": _LOCKED,
    "57014": _SLOW,
    "53100": _FULL,
    "25006": _READONLY,
    "42501": _READONLY,
    "XX001": _DAMAGED,
    "XX002": _DAMAGED,
}
_SQLSTATE_CLASS = {"08": _UNREACHABLE, "57": _UNREACHABLE, "28": _UNREACHABLE, "3D": _UNREACHABLE}


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of SQLAlchemy and the drivers as Faults. None of them passes this border."""
    try:
        yield
    except PoolTimeout as error:
        raise Fault(
            "every connection to the database is in use", code="database_busy", mend="try again"
        ) from error
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise fault_of(error) from error


def fault_of(error: Exception) -> Fault:
    """The Fault for a driver's error code."""
    original = error.orig if isinstance(error, DBAPIError) else error
    known = _known(original)
    if known is None and isinstance(error, DBAPIError) and not isinstance(original, sqlite3.Error):
        # A server that never answered gave no code.
        is_lost = error.connection_invalidated or (
            isinstance(error, OperationalError) and not _state(original)
        )
        known = _UNREACHABLE if is_lost else None
    if known is not None:
        code, message, mend = known
        return Fault(message, code=code, mend=mend)
    return Fault(
        f"the database refused a statement ({type(original).__name__}, {_number(original)})",
        code="database_error",
        mend="this is a defect of greenfast: please report it",
    )


def _known(original: BaseException | None) -> tuple[str, str, str] | None:
    if isinstance(original, sqlite3.Error):
        extended = getattr(original, "sqlite_errorcode", None) or 0
        return _SQLITE_EXTENDED.get(extended) or _SQLITE.get(extended & 0xFF)
    state = _state(original)
    return _SQLSTATE.get(state) or _SQLSTATE_CLASS.get(state[:2])


def _state(original: BaseException | None) -> str:
    return getattr(original, "sqlstate", None) or ""


def _number(original: BaseException | None) -> object:
    return (
        getattr(original, "sqlite_errorname", None)
        or getattr(original, "sqlstate", None)
        or "no code"
    )
