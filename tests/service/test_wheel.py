"""The wheel in an empty folder, as somebody has it who did not clone the repository: every command's main path."""

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
from pathlib import Path

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
    "greenfast/db/migrations/env.py",
)


@pytest.fixture(scope="session")
def distributions(tmp_path_factory) -> Path:
    """A folder with the wheel and the sdist, both built from a copy of the checkout: builds leave files behind."""
    folder = tmp_path_factory.mktemp("distributions")
    copy = folder / "checkout"
    names = (
        subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        .stdout.decode()
        .split("\0")
    )
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy / name)
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, copy],
        check=True,
        capture_output=True,
        timeout=300,
    )
    return folder


@pytest.fixture(scope="session")
def installed(distributions, tmp_path_factory) -> Path:
    """The `greenfast` command of a fresh virtual environment that holds the wheel; its wheels of others are ours."""
    home = tmp_path_factory.mktemp("installed")
    python = _environment(home / "venv", distributions)
    return python.with_name("greenfast")


def _environment(folder: Path, distributions: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    (wheel,) = distributions.glob("*.whl")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel],
        check=True,
    )
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    ours = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (site / "zz_dependencies.pth").write_text(
        "\n".join(ours)
    )  # after its own: the wheel's greenfast is found first
    for library in (Path(path) / "nvidia" for path in ours):
        if (
            library.is_dir() and not (site / "nvidia").exists()
        ):  # CUDA's wheels are looked up in the environment itself
            (site / "nvidia").symlink_to(library)
    return python


@pytest.fixture
def run(installed, tmp_path):
    """Run a command in an empty folder: its JSON when `--json` was asked for, else its output."""
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "GREENFAST_DATA": str(tmp_path / "data"),
        "GREENFAST_TEMPLATE_PATH": str(
            next(installed.parents[1].glob("lib/*/site-packages/greenfast/album"))
        ),
    }

    def command(*arguments: str, code: int = 0):
        done = subprocess.run(
            [installed, *arguments],
            cwd=empty,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert list(empty.glob("*.py")) == []
        return json.loads(done.stdout) if "--json" in arguments else done.stdout

    command.environment, command.folder = environment, empty
    return command


def test_wheel_and_sdist_carry_data_as_well_as_code(distributions):
    (wheel,), (sdist,) = distributions.glob("*.whl"), distributions.glob("*.tar.gz")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert set(CARRIED) <= names
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"greenfast"}
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "kernel_templates/attention/kernel.toml",
        "tests/kernels/album.toml",
        "LICENSE",
        "pyproject.toml",
        "search/targets/emulator/native/checker.cpp",
    } <= inside


def test_the_command_shows_its_version_and_what_there_is(run):
    assert run("--version").split() == ["greenfast", greenfast.__version__]
    assert {row["kernel"] for row in run("templates", "--json")} >= {"attention", "rmsnorm"}
    states = {row["name"]: row["status"] for row in run("doctor", "--json")}
    assert {states[name] for name in ("kernels", "NVRTC and CUDA headers", "host compiler")} == {
        "ok"
    }
    assert "replay:mission-mma-h200" in run("targets")


def test_a_candidate_is_judged_and_an_entry_of_the_album_behaves(run):
    judged = run("trial", "axpy", "--template", "right", "--workload", "odd", "--json")
    assert judged["verdict"] == "green"
    entries = run("album", "--only", "axpy off_by_one", "--json")
    assert entries and all(entry["ok"] for entry in entries)


def test_a_search_ends_and_its_bundle_is_verified(run, tmp_path):
    search = run("search", "axpy", "--workload", "odd", "--trials", "2", "--json")
    bundle = tmp_path / "winner.zip"
    run("bundle", search["id"], "-o", str(bundle))
    run("verify", str(bundle), "--trust", "--json")


def test_the_service_serves_a_page(installed, run):
    process = subprocess.Popen(
        [installed, "serve", "--port", "0", "--workers", "0"],
        cwd=run.folder,
        env=run.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stderr.readline()
        url = next(word for word in line.split() if word.startswith("http")).rstrip("/.,")
        with urllib.request.urlopen(f"{url}/kernels", timeout=30) as answer:
            assert b"attention" in answer.read()
    finally:
        process.terminate()
        process.wait(30)
