"""One file lock per GPU: checks share the GPU, a timing has it alone."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from greenfast.search.errors import Fault

POLL_S = 0.02


class GpuLock:
    """The lock of the GPU `uuid`, among all processes that use `folder`.

    The system releases it when the process ends.
    """

    def __init__(self, folder: Path, uuid: str, target: str, deadline_s: float) -> None:
        self._target, self._deadline_s = target, deadline_s
        folder.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(
            folder / f"gpu-{uuid}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666
        )

    @contextmanager
    def held(self, *, alone: bool) -> Iterator[None]:
        """Hold it, `alone` for timing. Fault when others keep the GPU beyond the deadline."""
        kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        end = time.monotonic() + self._deadline_s
        while True:
            try:
                fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise Fault(
                        f"another process has used {self._target} for {self._deadline_s:g} s",
                        code="gpu_busy",
                        mend="wait for it, or choose another target",
                    ) from None
                time.sleep(POLL_S)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
