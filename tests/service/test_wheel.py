"""The installed wheel in an empty folder, without the checkout: the main path of each command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import greenfast

ROOT = Path(__file__).resolve().parents[2]
CARRIED = (
    "greenfast/py.typed",
    "greenfast/kernel_templates/attention/kernel.toml",
    "greenfast/kernel_templates/attention/mma/softmax.cu.j2",
    "greenfast/kernel_templates/include/gf/mma.cuh",
    "greenfast/search/devices/h200.toml",
    "greenfast/search/targets/emulator/native/checker.cpp",
    "greenfast/search/targets/emulator/include/gf_emulator/abi.h",
    "greenfast/recordings/mission-mma-h200.recording.jsonl.gz",
    "greenfast/album/album.toml",
    "greenfast/app/dashboard/static/dashboard.css",
    "greenfast/app/bundle/files/host.cu",
    "greenfast/app/cli/scaffold/reference.py.txt",
    "greenfast/search/kernels/modules/greenfast_bounds.py",
    "greenfast/search/kernels/schemas/kernel.schema.json",
    "greenfast/db/migrations/env.py",
)
OTHER_PYTHONS = tuple(
    name
    for name in ("python3.11", "python3.12", "python3.13", "python3.14")
    if name != f"python3.{sys.version_info.minor}"
)
COMMAND_LIMIT_S = 300
INSTALL_LIMIT_S = 1200


@dataclass(frozen=True)
class Installation:
    """The `greenfast` command of an environment, run in an empty folder."""

    command: Path
    environment: dict[str, str]
    folder: Path

    def run(self, *arguments: str) -> Any:
        """Output of a command that must succeed, read as JSON after `--json`."""
        done = subprocess.run(
            [self.command, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if "--json" in arguments else done.stdout

    def served_page(self, path: str) -> bytes:
        """A page of `greenfast serve`, which is started for it and stopped again."""
        process = subprocess.Popen(
            [self.command, "serve", "--port", "0", "--workers", "0"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("greenfast serves http://"), line
            with urllib.request.urlopen(line.split()[-1] + path, timeout=30) as answer:
                return answer.read()
        finally:
            process.terminate()
            process.communicate(timeout=30)


def copied_checkout(folder: Path) -> Path:
    """The files of the checkout that git would commit: a build leaves files behind."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def distributions(tmp_path_factory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("distributions")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "build",
            "--no-isolation",
            "--outdir",
            folder,
            copied_checkout(folder / "checkout"),
        ],
        check=True,
        capture_output=True,
        timeout=COMMAND_LIMIT_S,
    )
    return folder


@pytest.fixture(scope="session")
def wheel(distributions) -> Path:
    (path,) = distributions.glob("*.whl")
    return path


def borrow_dependencies(site: Path) -> None:
    """Make this environment's packages importable from the site-packages folder `site`.

    The wheel's own greenfast comes first. CUDA's wheels are looked up in the environment itself,
    so their folder is linked.
    """
    ours = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (site / "zz_dependencies.pth").write_text("\n".join(ours))
    for library in (Path(path) / "nvidia" for path in ours):
        if library.is_dir() and not (site / "nvidia").exists():
            (site / "nvidia").symlink_to(library)


def installation(venv: Path, folder: Path, cache: Path | None = None) -> Installation:
    """The command of `venv` with data and an empty working folder below `folder`."""
    for name in ("data", "empty"):
        (folder / name).mkdir(parents=True)
    if cache is not None:
        (folder / "data" / "cache").symlink_to(cache)
    (album,) = venv.glob("lib/*/site-packages/greenfast/album")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GREENFAST_DATA": str(folder / "data"),
        "GREENFAST_TEMPLATE_PATH": str(album),
    }
    return Installation(venv / "bin" / "greenfast", environment, folder / "empty")


@pytest.fixture(scope="session")
def installed(wheel, artifacts, tmp_path_factory) -> Installation:
    """The wheel in a fresh environment that borrows its dependencies: nothing is downloaded."""
    folder = tmp_path_factory.mktemp("installed")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin" / "python"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            python,
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            wheel,
        ],
        check=True,
    )
    paths = {"base": str(venv), "platbase": str(venv)}
    borrow_dependencies(Path(sysconfig.get_path("purelib", vars=paths)))
    return installation(venv, folder, artifacts)


def check_search_and_bundle(greenfast_of: Installation, trials: int) -> None:
    search = greenfast_of.run(
        "search", "axpy", "--workload", "odd", "--trials", str(trials), "--json"
    )
    assert search["status"] == "completed"
    bundle = greenfast_of.folder.with_name("winner.zip")
    greenfast_of.run("bundle", search["id"], "-o", str(bundle))
    greenfast_of.run("verify", str(bundle), "--trust", "--json")


@pytest.mark.slow
def test_wheel_and_sdist_carry_data_as_well_as_code(distributions, wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert set(CARRIED) <= names
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert len(pages) > 30 and {f"greenfast/{page}" for page in pages} <= names
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"greenfast"}
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "kernel_templates/attention/kernel.toml",
        "tests/kernels/album.toml",
        "LICENSE",
        "pyproject.toml",
        "search/targets/emulator/native/checker.cpp",
    } <= inside


@pytest.mark.slow
def test_version_doctor_and_targets(installed):
    assert installed.run("--version").split() == ["greenfast", greenfast.__version__]
    states = {row["name"]: row["status"] for row in installed.run("doctor", "--json")}
    checked = ("kernels", "NVRTC and CUDA headers", "host compiler")
    assert {states[name] for name in checked} == {"ok"}
    assert "replay:mission-mma-h200" in installed.run("targets")


@pytest.mark.slow
def test_a_search_ends_and_its_bundle_is_verified(installed):
    check_search_and_bundle(installed, 1)


@pytest.mark.slow
def test_an_entry_of_the_album_is_judged(installed):
    entries = installed.run("album", "--only", "shifted_by_one", "--json")
    assert entries
    assert all(entry["ok"] for entry in entries)


@pytest.mark.slow
def test_the_service_serves_a_page(installed):
    assert b"attention" in installed.served_page("/kernels")
    assert list(installed.folder.iterdir()) == []


def find_python(name: str) -> Path | None:
    """An interpreter on PATH or among pyenv's versions."""
    if path := shutil.which(name):
        done = subprocess.run([path, "--version"], capture_output=True, check=False)
        if done.returncode == 0:  # pyenv's shim of a version that is not selected fails
            return Path(path)
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return next(iter(sorted(versions.glob(f"*/bin/{name}"))), None)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHER_PYTHONS)
def test_it_works_on_another_python_with_dependencies_of_its_own(name, wheel, tmp_path):
    """Downloads every dependency from the package index."""
    python = find_python(name)
    if python is None:
        pytest.skip(f"{name} is not installed")
    venv = tmp_path / "venv"
    subprocess.run([python, "-m", "venv", venv], check=True)
    subprocess.run(
        [venv / "bin" / "python", "-m", "pip", "install", "--quiet", wheel],
        check=True,
        timeout=INSTALL_LIMIT_S,
    )
    command = installation(venv, tmp_path)
    states = {row["name"]: row["status"] for row in command.run("doctor", "--json")}
    assert states["kernels"] == states["NVRTC and CUDA headers"] == "ok"
    templates = command.run("templates", "--json")
    assert {row["kernel"] for row in templates} >= {"attention", "rmsnorm"}
    trial = command.run("trial", "axpy", "--template", "right", "--workload", "odd", "--json")
    assert trial["verdict"] == "green"
    check_search_and_bundle(command, 2)
    assert b"attention" in command.served_page("/kernels")
    entries = command.run("album", "--only", "shifted_by_one", "--json")
    assert entries
    assert all(entry["ok"] for entry in entries)
    assert list(command.folder.iterdir()) == []


@pytest.mark.slow
def test_a_new_user_writes_searches_and_bundles_a_kernel(installed):
    """From the wheel in an empty folder to a bundle that is checked again elsewhere."""
    kernels = installed.folder / "kernels"
    user = Installation(
        installed.command,
        {**installed.environment, "GREENFAST_TEMPLATE_PATH": ""},
        installed.folder,
    )
    user.run("new", "kernel", "first")
    assert user.run("lint", "first") == "first: no problems\n"
    search = user.run("search", "first", "--trials", "3", "--json")
    assert search["status"] == "completed" and search["best"] is not None
    bundle = installed.folder.with_name("first.zip")
    user.run("bundle", search["id"], "-o", str(bundle))
    with zipfile.ZipFile(bundle) as archive:
        names = {name.rpartition("/")[2] for name in archive.namelist()}
    assert {"reference.py", "greenfast_bounds.py", "kernel.toml"} <= names
    shutil.rmtree(kernels)  # the bundle carries what it needs
    user.run("verify", str(bundle), "--trust", "--json")
