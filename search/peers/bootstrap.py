"""Runs search/peers/child.py in the Python that has PyTorch. greenfast need not be installed there.

    python bootstrap.py '{"greenfast": FOLDER, "greenfast.search": FOLDER, ...}' REQUEST REPLIES

greenfast's packages are imported from the given folders, and no folder of ours joins `sys.path`.
The other Python therefore sees its own NumPy, CuPy and PyTorch, and nothing of our environment.
This file and offers.py also run on Python 3.8 to 3.10, to report that the version is too old.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

OLDEST = (3, 11)  # requires-python in pyproject.toml
HERE = Path(__file__).resolve().parent


class Packages(MetaPathFinder):
    """Finds packages by name in the folders given for them."""

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
    folders, request_file, reply_file = sys.argv[1:4]
    # The modules beside this file must not be importable as top-level names.
    sys.path[:] = [path for path in sys.path if path != str(HERE)]
    if sys.version_info < OLDEST:
        _refuse(Path(request_file), Path(reply_file))
        return
    sys.meta_path.insert(0, Packages(json.loads(folders)))
    from greenfast.search.peers import child

    child.main(Path(request_file), Path(reply_file))


def _refuse(request_file: Path, reply_file: Path) -> None:
    """Report every peer as unavailable, without an import of greenfast's packages."""
    offers = _module_of(HERE / "offers.py")
    request = json.loads(request_file.read_text())
    needed, present = (".".join(map(str, version)) for version in (OLDEST, sys.version_info[:2]))
    why = f"{request['python']} is Python {present}, and greenfast needs {needed} or newer"
    with reply_file.open("a") as file:
        for name, workload in offers.pending(request, offers.load_offers(Path(request["peers"]))):
            offers.write_row(file, **offers.unavailable(name, workload["name"], why))


def _module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"greenfast_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
