"""The installed package: pyproject lists every folder of code and every data file."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import greenfast

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = PYPROJECT["tool"]["setuptools"]["package-dir"]


def _packages() -> set[str]:
    """Dotted names of all folders with an `__init__.py` under the mapped ones."""
    names = set()
    for package, folder in FOLDERS.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            inner = init.parent.relative_to(ROOT / folder).parts
            names.add(".".join((package, *inner)))
    return names


def test_every_folder_of_code_is_a_listed_package():
    listed = PYPROJECT["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted(_packages())


def test_the_public_names_are_there_and_unknown_ones_are_refused_with_the_known():
    for name in greenfast.__all__:
        assert getattr(greenfast, name) is not None
    with pytest.raises(AttributeError, match="Client"):
        _ = greenfast.Clint


def test_importing_greenfast_loads_nothing_heavy():
    script = (
        "import sys, greenfast; print(*sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'numpy', 'httpx', 'sqlalchemy', 'fastapi', 'optuna', 'typer', 'rich', 'jinja2', "
        "'pydantic'}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert loaded.split() == []
