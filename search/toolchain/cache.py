"""A content-addressed store of files, written atomically and checked when read."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from greenfast.search.errors import Fault
from greenfast.search.toolchain.cache_room import CacheRoom, mark_used


class ArtifactCache:
    """Entries of a JSON record and a blob, by a key of hexadecimal digits.

    Several processes may use it at the same time. Entries that were not used for long are removed
    when the cache is full (cache_room.py).
    """

    def __init__(self, root: Path, name: str) -> None:
        """The entries lie in the folder `name` of the cache `root`."""
        self._folder = root / name
        self._room = CacheRoom(root)

    def get(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """The entry; None when it is missing or damaged."""
        path = self._path(key)
        try:
            head, _, blob = path.read_bytes().partition(b"\n")
            record = json.loads(head)
        except (OSError, ValueError):
            return None
        if record.pop("blob_sha256", None) != hashlib.sha256(blob).hexdigest():
            return None
        mark_used(path)
        return record, blob

    def put(self, key: str, record: dict[str, Any], blob: bytes) -> None:
        """Store an entry; Fault when the folder cannot be written."""
        head = json.dumps({**record, "blob_sha256": hashlib.sha256(blob).hexdigest()}).encode()
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, head + b"\n" + blob)
            self._room.add(len(head) + 1 + len(blob))
        except OSError as error:
            raise Fault(
                f"the cache cannot be written: {error.strerror}",
                code="cache_unwritable",
                mend="free disk space or set GREENFAST_DATA to a writable folder",
            ) from error

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / key


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` beside `path` and rename it into place, so that no reader sees a part of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
