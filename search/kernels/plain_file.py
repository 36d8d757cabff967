"""Opens a file that a user names, which may be a pipe or a device and would then never end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 2**20


class NotPlain(OSError):
    """A folder, a pipe or a device."""


def open_plain(path: Path) -> BinaryIO:
    """The file at `path`, links followed; OSError for anything but a plain file."""
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return open(handle, "rb")
    os.close(handle)
    what = "it is a folder" if stat.S_ISDIR(kind) else "it is no plain file"
    raise NotPlain(errno.EINVAL, what, str(path))


def read_plain_file(path: Path, most_bytes: int) -> bytes:
    """Its bytes, or a little more than `most_bytes`, so that a longer file shows; OSError.

    One read of the largest size would take that much memory for every file.
    """
    chunks, size = [], 0
    with open_plain(path) as file:
        while size <= most_bytes and (chunk := file.read(CHUNK_BYTES)):
            chunks.append(chunk)
            size += len(chunk)
    return b"".join(chunks)
