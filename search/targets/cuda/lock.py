"""One file lock per GPU: one process of a machine uses it at a time.

A checked run beside a timing would disturb it, so they do not share the GPU.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from greenfast.search.errors import Fault

POLL_S = 0.02


def locks_folder(fallback: Path) -> Path:
    """The user's folder of locks on this machine, so that all data folders share them.

    `fallback` where another user could write to that folder. Processes of other users, or with
    another folder for temporary files, have locks of their own.
    """
    folder = Path(tempfile.gettempdir()) / f"greenfast-locks-{os.getuid()}"
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.lstat()
        writable = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not writable:
            return folder
    return fallback


class GpuLock:
    """The lock of the GPU `uuid`, among all processes that use `folder`.

    The system releases it when the process ends. Who wants it waits at a second lock first, so that
    a process which uses the GPU all the time does not take it again before one that waits.
    """

    def __init__(self, folder: Path, uuid: str, target: str, deadline_s: float) -> None:
        self._target, self._deadline_s = target, deadline_s
        folder.mkdir(parents=True, exist_ok=True)
        self._gpu, self._queue = (
            os.open(folder / f"gpu-{uuid}.{kind}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            for kind in ("lock", "queue")
        )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it. Raises as `take` does."""
        self.take()
        try:
            yield
        finally:
            self.release()

    def take(self) -> None:
        """Wait for it. Fault when others keep the GPU beyond the deadline, or once it is closed."""
        if self._gpu < 0:
            raise Fault(f"{self._target} is no longer in use here", code="interrupted")
        end_s = time.monotonic() + self._deadline_s
        self._wait_for(self._queue, end_s)
        try:
            self._wait_for(self._gpu, end_s)
        finally:
            fcntl.flock(self._queue, fcntl.LOCK_UN)

    def release(self) -> None:
        if self._gpu >= 0:
            fcntl.flock(self._gpu, fcntl.LOCK_UN)

    def is_awaited(self) -> bool:
        """Whether another process waits. Only its holder may ask."""
        if not _taken(self._queue):
            return True
        fcntl.flock(self._queue, fcntl.LOCK_UN)
        return False

    def close(self) -> None:
        """Release it for good."""
        if self._gpu >= 0:
            os.close(self._gpu)
            os.close(self._queue)
            self._gpu = self._queue = -1

    def _wait_for(self, fd: int, end_s: float) -> None:
        while not _taken(fd):
            if time.monotonic() >= end_s:
                raise Fault(
                    f"another process has used {self._target} for {self._deadline_s:g} s",
                    code="gpu_busy",
                    mend="wait for it, or choose another target",
                )
            time.sleep(POLL_S)


def _taken(fd: int) -> bool:
    """Whether this process has the lock of a file now."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
