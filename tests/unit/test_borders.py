"""Imports go one way, and third parties stay in their rooms."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("search", "db", "app")
MAY_IMPORT = {"search": {"search"}, "db": {"db", "search"}, "app": {"app", "db", "search"}}
ROOMS = {
    "cupy": ("search/targets/cuda/", "search/peers/duel.py"), "torch": ("search/peers/duel.py",),
    "pynvml": ("search/targets/cuda/",),
    "cuda": ("search/toolchain/", "app/cli/doctor_checks.py", "app/cli/doctor.py"),
    "optuna": ("search/strategies/", "app/export.py"), "jinja2": ("search/render.py", "app/dashboard/"),
    "sqlalchemy": ("db/",), "alembic": ("db/",), "fastapi": ("app/",), "starlette": ("app/",), "typer": ("app/",),
    "ray": ("search/loop/ray.py",), "plotly": ("app/dashboard/",), "pygments": ("app/dashboard/",),
}


@cache
def _imports() -> list[tuple[str, str]]:
    """(file, top-level module) of every import statement, wherever it stands in the file.

    What is only downloaded (app/bundle/files) is data here.
    """
    found = []
    files = (one for package in PACKAGES for one in (ROOT / package).rglob("*.py"))
    for path in sorted(one for one in files if "bundle_files" not in one.parts):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative import"
                names = [node.module or ""]
            found += [(path.relative_to(ROOT).as_posix(), name.split(".")[0]) for name in names]
    return found


def test_there_is_something_to_walk():
    assert len(_imports()) > 100


def test_packages_import_one_way_only():
    wrong = [(file, module) for file, module in _imports()
             if module in (*PACKAGES, "tests") and module not in MAY_IMPORT[file.split("/")[0]]]
    assert wrong == []


@pytest.mark.parametrize("module", ROOMS)
def test_a_third_party_stays_in_its_room(module):
    outside = [file for file, name in _imports() if name == module and not file.startswith(ROOMS[module])]
    assert outside == []


def test_concrete_stores_targets_and_toolchains_are_named_in_wiring_only():
    named = [path.relative_to(ROOT).as_posix() for path in (ROOT / "app").rglob("*.py")
             if "Toolchain(" in path.read_text() or "Store.open(" in path.read_text()]
    assert set(named) <= {"app/wiring.py"}
