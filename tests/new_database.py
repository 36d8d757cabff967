"""Empty databases by copying one: to migrate each test's own takes 50 ms, and alembic."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from greenfast.db.store import Store

FILE = "greenfast.sqlite3"  # of a data folder


def place_database(path: Path) -> None:
    """A migrated database without rows, as the product makes it, where there is none yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        shutil.copyfile(_empty(), path)


@cache
def _empty() -> Path:
    folder = tempfile.mkdtemp(prefix="greenfast-empty-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / FILE
    Store.open(f"sqlite:///{path}").close()
    assert [file.name for file in path.parent.iterdir()] == [path.name], "a log was left behind"
    return path
