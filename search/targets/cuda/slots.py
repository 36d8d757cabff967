"""Shared memory for results, as the process sees it that owns a GPU, and its reporter."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections import deque

import numpy as np

from greenfast.search.targets.cuda.reporter import SLOT_BYTES, SLOTS

MODULE = "greenfast.search.targets.cuda.reporter"


class Slots:
    """The slots, and the pipe to the reporter, which this starts. It ends with this process."""

    def __init__(self, write_fd: int) -> None:
        """Replies go to the reporter from now on: `write_fd`, to the parent, is the reporter's."""
        memory_fd = os.memfd_create("greenfast-slots")
        os.ftruncate(memory_fd, SLOTS * SLOT_BYTES)
        read_fd, self.reply_fd = os.pipe()
        self._free_fd, free_fd = os.pipe()
        given = (read_fd, write_fd, memory_fd, free_fd)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-B", "-m", MODULE, *map(str, given)],
            stdin=subprocess.DEVNULL,  # not this process's, which tells it of the parent's end
            pass_fds=given,
        )
        shared = mmap.mmap(memory_fd, SLOTS * SLOT_BYTES)
        for fd in given:  # the parent learns of the reporter's end because no one else has its pipe
            os.close(fd)
        self.memory = np.frombuffer(shared, np.uint8).reshape(SLOTS, SLOT_BYTES)
        self._free = deque(range(SLOTS))

    def take(self) -> int:
        """The number of a free slot; waits for one. EOFError when the reporter has ended."""
        if not self._free:
            freed = os.read(self._free_fd, SLOTS)
            if not freed:
                raise EOFError("the reporter has ended")
            self._free.extend(freed)
        return self._free.popleft()
