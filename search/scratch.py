"""Folders for temporary files, which go with their process even if it is killed.

A folder stays locked as long as its process runs. Whoever makes the next one removes those that
nobody holds any more.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "greenfast-scratch-"


@contextmanager
def scratch(kind: str, place: Path | None = None) -> Iterator[Path]:
    """A private folder for this block, among temporary files or hidden in the folder `place`.

    `kind` is a part of its name.
    """
    folder, lock = _made(kind, place)
    try:
        yield folder
    finally:
        _remove(folder, lock)


def scratch_of(owner: object, kind: str) -> tuple[Path, Callable[[], object]]:
    """A private folder, and a call that removes it; it goes with `owner` at the latest."""
    folder, lock = _made(kind)
    return folder, weakref.finalize(owner, _remove, folder, lock)


def _made(kind: str, place: Path | None = None) -> tuple[Path, int]:
    """A new folder, and a descriptor that locks it."""
    prefix = PREFIX if place is None else f".{PREFIX}"
    _remove_abandoned(place or Path(tempfile.gettempdir()), prefix)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{kind}-", dir=place))
        with suppress(FileNotFoundError):  # another process has taken it for an abandoned one
            lock = _opened(folder)
            with suppress(OSError):  # a file system without locks: then nobody removes it either
                fcntl.flock(lock, fcntl.LOCK_SH)
            if folder.exists():
                return folder, lock
            os.close(lock)


def _remove(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def _remove_abandoned(place: Path, prefix: str) -> None:
    """Remove the folders of processes that have ended without removing them."""
    for folder in place.glob(f"{prefix}*"):
        with suppress(OSError):  # another user's, or somebody else removes it
            lock = _opened(folder)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.getuid():
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
