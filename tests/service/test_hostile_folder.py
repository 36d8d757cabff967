"""No command imports a file of the current folder, even one named like a module of ours."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from service_home import Home, axpy

from greenfast.client import Client

MODULES = (
    "app",
    "db",
    "greenfast",
    "platform",
    "numpy",
    "json",
    "ctypes",
    "uvicorn",
    "optuna",
    "sitecustomize",
)
PACKAGES = ("search", "kernel_templates", "greenfast", "cuda", "sqlalchemy")
TEXT = """import os
with open({marker!r}, "a") as file:
    file.write(__name__ + "\\n")
raise SystemExit("a file of the current folder was imported: " + __name__)
"""


class HostileHome(Home):
    """Commands as they are installed, run in a folder of such files."""

    warm = False

    def __init__(self, folder: Path, cache: Path) -> None:
        super().__init__(folder, cache)
        self.marker = folder.parent / "imported"
        self.environment.pop("PYTHONPATH")
        for name in MODULES:
            (folder / f"{name}.py").write_text(TEXT.format(marker=str(self.marker)))
        for name in PACKAGES:
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text(TEXT.format(marker=str(self.marker)))

    @staticmethod
    def _command(arguments: tuple[str, ...]) -> list[str]:
        return [str(Path(sys.executable).parent / "greenfast"), *arguments]

    @property
    def imported(self) -> str:
        return self.marker.read_text() if self.marker.exists() else ""


@pytest.fixture
def hostile(tmp_path, artifacts):
    hostile_home = HostileHome(tmp_path / "data", artifacts)
    yield hostile_home
    hostile_home.end_all()


@pytest.mark.slow
def test_commands_import_nothing_of_the_folder(hostile):
    doctor = hostile.run("doctor")
    assert doctor.code == 0 and "a working Python" not in doctor.out, doctor.out + doctor.err
    assert "axpy" in hostile.run("templates").out
    assert not hostile.imported


@pytest.mark.slow
def test_a_command_and_its_children_import_nothing_of_the_folder(hostile):
    trial = hostile.run("trial", "axpy", "--template", "right", "--workload", "line", "--json")
    assert trial.code == 0 and trial.json["verdict"] == "green", trial.out + trial.err
    assert not hostile.imported


@pytest.mark.slow
def test_a_service_and_its_workers_import_nothing_of_the_folder(hostile):
    _, url = hostile.serve("--workers", "1")
    with Client(url) as client:
        row = client.submit(**axpy())
        assert client.wait(row["id"], deadline_s=600)["status"] == "completed"
    assert not hostile.imported
