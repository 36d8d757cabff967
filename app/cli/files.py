"""Files that the caller names for a command's output."""

from __future__ import annotations

import os
from pathlib import Path

from greenfast.search.errors import UsageError
from greenfast.search.toolchain.cache import write_atomically


def require_folder(path: Path | None) -> None:
    """Refuse a file whose folder does not exist, before any work is done for it."""
    if path is not None and not path.parent.is_dir():
        raise UsageError(
            f"{path} cannot be written: there is no such folder",
            code="unwritable_output",
            mend="choose another file with -o",
        )


def write_output(path: Path, content: str | bytes) -> None:
    """Write the whole file or nothing; UsageError `unwritable_output` when that fails.

    A device, a pipe or a link, such as /dev/stdout, is written to and not replaced.
    """
    require_folder(path)
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.write_bytes(data)
            return
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
        write_atomically(path, data)  # readable only by its owner, until the next line
        path.chmod(mode)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}",
            code="unwritable_output",
            mend="choose another file with -o",
        ) from error


def _umask() -> int:
    """The process's mask of new files' permissions, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
