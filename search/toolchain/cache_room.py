"""How much a cache may hold: beyond the limit, the least recently used entries are removed.

Several processes share a cache. A file in it counts the bytes that all of them have written, so
that its folders are walked only when the count exceeds the limit.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.errors import UsageError
from greenfast.search.kernels.held_folders import remove_unheld

VARIABLE = "GREENFAST_CACHE_MIB"
DEFAULT_MIB, LEAST_MIB, MOST_MIB = 4096, 64, 2**30
SHARE_LEFT = 0.75  # of the limit, after a removal
# A process may be about to open an entry that it has just marked as used.
IN_USE_S = 120.0
ABANDONED_S = 86_400.0  # after which a folder of work in progress belongs to nobody
COUNT, COUNT_BYTES = ".bytes", 20  # the file, whose length never changes
# Kinds of entries, by the pattern of their files. Files that differ in their endings are one entry.
KINDS = {
    "cubins": ("cubin/*/*", "*.cubin"),
    "emulated kernels": ("emulator/*/modules/*",),
    "kernels' files": ("kernels/[!.]*",),  # folders, each of a kernel that a search has frozen
}
WORK = ("emulator/.fresh-*", "emulator/*/.module-*", "kernels/.fresh-*")
BUILDS = "emulator/[!.]*/gf-emulate"  # of the emulator itself, one for each version and compiler


@dataclass(frozen=True)
class Entry:
    kind: str
    files: tuple[Path, ...]  # the one that is looked for first comes first
    size_bytes: int
    used: float  # seconds since the epoch


def read_mib(text: str) -> int:
    """A limit in MiB; ValueError with the range for an invalid one."""
    if text.isascii() and text.isdecimal() and LEAST_MIB <= int(text[:12]) <= MOST_MIB:
        return int(text)
    raise ValueError(f"{LEAST_MIB} to {MOST_MIB}")


def limit_bytes() -> int:
    """The limit of the environment; UsageError for an invalid one."""
    text = os.environ.get(VARIABLE) or str(DEFAULT_MIB)
    try:
        return read_mib(text) << 20
    except ValueError as error:
        raise UsageError(
            f"{VARIABLE} is {text!r}", code="bad_setting", mend=f"give a number of MiB: {error}"
        ) from None


def mark_used(path: Path) -> bool:
    """Whether the file is there; it is not removed for IN_USE_S from now on."""
    try:
        os.utime(path)
    except OSError:
        return path.exists()  # of another user, or on a disk that cannot be written
    return True


class CacheRoom:
    """The folder `root` and what it may hold."""

    def __init__(self, root: Path, most_bytes: int | None = None) -> None:
        """`most_bytes`: by default the limit of the environment."""
        self._root = root
        self._limit_bytes = limit_bytes() if most_bytes is None else most_bytes

    def add(self, size_bytes: int) -> None:
        """Count an entry that was written, and make room if it exceeds the limit.

        A cache that cannot be counted, for example on a full disk, is none of the caller's faults.
        """
        with suppress(OSError), self._counted() as count:
            counted = _number(count)
            total = counted + size_bytes if counted is not None else _size(self.entries())
            if total > self._limit_bytes:
                total = self._shrink(int(SHARE_LEFT * self._limit_bytes))
            _write(count, total)

    def clear(self) -> None:
        """Remove the entries, and all builds of the emulator but the newest, unless in use."""
        with self._counted() as count:
            _write(count, self._shrink(0))
            in_use = {file.parents[1] for entry in self.entries() for file in entry.files}
            for build in self.builds()[:-1]:
                if build not in in_use:
                    # At once, since a process that finds the program expects all the rest.
                    gone = build.with_name(f".fresh-{build.name}")
                    os.rename(build, gone)
                    shutil.rmtree(gone, ignore_errors=True)

    def entries(self) -> tuple[Entry, ...]:
        """All entries, the least recently used first."""
        found = [
            entry
            for kind, patterns in KINDS.items()
            for pattern in patterns
            for entry in _entries(self._root, kind, pattern)
        ]
        return tuple(sorted(found, key=lambda entry: entry.used))

    def builds(self) -> tuple[Path, ...]:
        """The folders of the emulator's builds, the newest last."""
        programs = sorted(self._root.glob(BUILDS), key=lambda path: path.stat().st_mtime)
        return tuple(path.parent for path in programs)

    def _shrink(self, left_bytes: int) -> int:
        """Remove the oldest entries until `left_bytes` are left, or only those in use."""
        _remove_abandoned(self._root)
        entries = self.entries()
        total = _size(entries)
        for entry in entries:
            if total <= left_bytes:
                break
            if _is_unused(entry) and _remove(entry):
                total -= entry.size_bytes
        return total

    @contextmanager
    def _counted(self) -> Iterator[int]:
        """The descriptor of the count, which no other process changes meanwhile."""
        self._root.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        count = os.open(self._root / COUNT, flags, 0o600)
        try:
            fcntl.flock(count, fcntl.LOCK_EX)
            yield count
        finally:
            os.close(count)


def _entries(root: Path, kind: str, pattern: str) -> Iterator[Entry]:
    groups: dict[Path, list[tuple[Path, os.stat_result]]] = defaultdict(list)
    for path in root.glob(pattern):
        with suppress(OSError):  # removed meanwhile
            status = path.lstat()
            groups[path.parent / path.name.partition(".")[0]].append((path, status))
    for group in groups.values():
        # kernel.so before kernel.other.so: a reader that finds the one needs the other.
        group.sort(key=lambda item: (len(item[0].name), item[0].name))
        files = tuple(path for path, _ in group)
        size = sum(
            bytes_below(path) if stat.S_ISDIR(status.st_mode) else status.st_size
            for path, status in group
        )
        yield Entry(kind, files, size, max(status.st_mtime for _, status in group))


def _is_unused(entry: Entry) -> bool:
    """Asked again just before the removal, since others go on using the cache."""
    with suppress(OSError):
        used = max(file.lstat().st_mtime for file in entry.files)
        return abs(time.time() - used) > IN_USE_S  # also of a clock that was set back
    return True


def _remove(entry: Entry) -> bool:
    """Whether the entry is gone: a folder that a process holds stays."""
    for path in entry.files:
        if path.is_dir() and not path.is_symlink():
            if not remove_unheld(path):
                return False
        else:
            path.unlink(missing_ok=True)
    return True


def _remove_abandoned(root: Path) -> None:
    """Remove the work of processes that were killed in the middle of a compilation."""
    for pattern in WORK:
        for folder in root.glob(pattern):
            with suppress(OSError):
                if time.time() - folder.lstat().st_mtime > ABANDONED_S:
                    shutil.rmtree(folder, ignore_errors=True)


def bytes_below(folder: Path) -> int:
    """Of all files below a folder, as far as they are still there."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size if path.is_file() else 0
    return total


def _size(entries: tuple[Entry, ...]) -> int:
    return sum(entry.size_bytes for entry in entries)


def _number(count: int) -> int | None:
    """The counted bytes; None: nobody has counted yet."""
    with suppress(ValueError):
        return max(0, int(os.pread(count, COUNT_BYTES, 0)))
    return None


def _write(count: int, total: int) -> None:
    os.pwrite(count, f"{total:<{COUNT_BYTES}}".encode(), 0)
