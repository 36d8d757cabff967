"""The installed package: its version, and the folders of its data, also in a checkout."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def _folder(package: str) -> Path:
    return Path(next(iter(import_module(package).__path__)))


KERNEL_TEMPLATES = _folder("greenfast.kernel_templates")
RECORDINGS = _folder("greenfast.recordings")
ALBUM = _folder("greenfast.album")


def own_version() -> str:
    """The installed version of greenfast; a bare checkout has none."""
    try:
        return version("greenfast")
    except PackageNotFoundError:
        return "not installed"
