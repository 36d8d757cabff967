"""An SQLite database that holds one submitted search."""

from __future__ import annotations

from pathlib import Path

import store_values as values
from new_database import place_database

from greenfast.db.store import Store


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def make(path: Path) -> None:
    place_database(path)
    store = Store.open(url(path))
    store.submit(values.plan())
    store.close()
