"""Runs search/peers/child.py in another Python, the one that has PyTorch: greenfast need not be installed there.

    python bootstrap.py '{"greenfast": FOLDER, "greenfast.search": FOLDER}' REQUEST REPLIES

The two packages are found where this process found them. No folder of ours joins `sys.path`, so that the other Python
sees its own NumPy, CuPy and PyTorch and nothing of our environment.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any


class Packages(MetaPathFinder):
    """Finds packages by the folders that they lie in."""

    def __init__(self, folders: dict[str, str]) -> None:
        self._folders = folders

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        folder = self._folders.get(fullname)
        if folder is None:
            return None
        return importlib.util.spec_from_file_location(
            fullname, Path(folder, "__init__.py"), submodule_search_locations=[folder]
        )


def main() -> None:
    own = str(Path(__file__).resolve().parent)
    sys.path[:] = [
        path for path in sys.path if path != own
    ]  # the modules beside this file are no top-level names
    sys.meta_path.insert(0, Packages(json.loads(sys.argv[1])))
    from greenfast.search.peers import child

    child.main(Path(sys.argv[2]), Path(sys.argv[3]))


if __name__ == "__main__":
    main()
