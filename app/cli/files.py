"""Files that the caller names for a command's output."""

from __future__ import annotations

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
    """Write the whole file or nothing; UsageError `unwritable_output` when that fails."""
    require_folder(path)
    try:
        write_atomically(path, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}",
            code="unwritable_output",
            mend="choose another file with -o",
        ) from error
