"""Folders of the data that ships with the package, in a checkout or an installed wheel."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path


def _folder(package: str) -> Path:
    return Path(next(iter(import_module(package).__path__)))


KERNEL_TEMPLATES = _folder("greenfast.kernel_templates")
RECORDINGS = _folder("greenfast.recordings")
ALBUM = _folder("greenfast.album")
