"""Folders that this process reads from, and that no other may remove meanwhile.

A search reads templates, headers and reference.py for as long as it runs. A shared lock on the
folder itself says so to all processes of the machine, and ends with the process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

# Folders that a process holds: those it used last. A worker runs one search at a time; the pages of
# a service read many kernels, each for a moment.
MOST_HELD = 64
_lock = threading.Lock()
_held: OrderedDict[Path, int] = OrderedDict()  # descriptors, the least recently used first


def hold(folder: Path) -> bool:
    """Whether the folder is there; if so, nobody removes it while it is held."""
    with _lock:
        held = _held.pop(folder, None)
        if held is not None and not _is_at(held, folder):  # removed, and written again
            os.close(held)
            held = None
        held = _locked(folder) if held is None else held
        if held is None:
            return False
        _held[folder] = held
        while len(_held) > MOST_HELD:
            os.close(_held.popitem(last=False)[1])
    with suppress(OSError):  # of another user, or on a disk that cannot be written
        os.utime(folder)
    return True


def _locked(folder: Path) -> int | None:
    """The folder's descriptor with a shared lock; None if it is not there."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):  # a file system without locks
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    if _is_at(descriptor, folder):
        return descriptor
    os.close(descriptor)  # another process removed it in between
    return None


def _is_at(descriptor: int, folder: Path) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), os.lstat(folder))
    return False


def remove_unheld(folder: Path) -> bool:
    """Remove the folder at once, unless a process holds it; whether it is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        grave = Path(tempfile.mkdtemp(prefix=".fresh-", dir=folder.parent))
        os.rename(folder, grave)  # onto the empty folder: at once, for those who look for it
        shutil.rmtree(grave, ignore_errors=True)
        return True
    except OSError:  # held, or of another user
        return False
    finally:
        os.close(descriptor)
