"""Finds recordings: in the folders of GREENFAST_RECORDINGS, the data folder, and the package."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

from greenfast.search.errors import unknown_name
from greenfast.search.kernels.catalogue import DATA_DEFAULT, DATA_VARIABLE
from greenfast.search.recordings.contents import Heading, Recording
from greenfast.search.recordings.file import SUFFIX, read, read_heading
from greenfast.search.shipped import RECORDINGS as SHIPPED

PATH_VARIABLE = "GREENFAST_RECORDINGS"
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}\Z")


def folders() -> tuple[Path, ...]:
    """The folders that exist. The first that has a recording of a name supplies it."""
    named = [Path(word) for word in os.environ.get(PATH_VARIABLE, "").split(os.pathsep) if word]
    data = Path(os.environ.get(DATA_VARIABLE) or DATA_DEFAULT) / "recordings"
    return tuple(folder for folder in (*named, data, SHIPPED) if folder.is_dir())


def recording_paths() -> dict[str, Path]:
    """The file of each recording, sorted by name."""
    paths: dict[str, Path] = {}
    for folder in folders():
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            paths.setdefault(path.name.removesuffix(SUFFIX), path)
    return dict(sorted(paths.items()))


def recording_names() -> tuple[str, ...]:
    return tuple(recording_paths())


def recording_path(name: str) -> Path:
    """UsageError with the known names when no folder has that recording."""
    paths = recording_paths()
    if name not in paths:
        raise unknown_name("target", f"replay:{name}", [f"replay:{path}" for path in paths])
    return paths[name]


def find_recording(name: str) -> Recording:
    """The recording of that name, read again only when its file has changed."""
    path = recording_path(name)
    status = path.stat()
    return _read(path, status.st_mtime_ns, status.st_size)


def find_heading(name: str) -> Heading:
    """The heading of that recording: cheap, for listings."""
    return read_heading(recording_path(name))


@lru_cache(maxsize=4)
def _read(path: Path, changed_ns: int, size: int) -> Recording:
    return read(path)
