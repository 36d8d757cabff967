"""Empty databases: an SQLite file by copying one, which saves 50 ms and alembic, or a schema."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from greenfast.db.store import Store

POSTGRES = os.environ.get("GREENFAST_TEST_POSTGRES", "")  # a server for tests, if there is one
DATABASES = ["sqlite", "postgresql"] if POSTGRES else ["sqlite"]

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


@contextmanager
def postgres_schema() -> Iterator[str]:
    """The address of a new schema of the server for tests; it is dropped at the end."""
    schema = f"greenfast_{uuid.uuid4().hex[:12]}"
    admin = create_engine(POSTGRES)
    with admin.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    yield (
        make_url(POSTGRES)
        .update_query_dict({"options": f"-csearch_path={schema}"})
        .render_as_string(False)
    )
    with admin.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
    admin.dispose()
