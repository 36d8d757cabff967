"""Installing greenfast beside PyTorch keeps PyTorch's packages: pip's and uv's resolvers, offline.

The index is a folder of empty wheels with the pins of the real ones: torch 2.11.0, 2.14.1 and
2.15.0, and the releases of cuda-toolkit that torch and greenfast name. greenfast's requirements
come from pyproject.toml.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from slow_cases import quick_first

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
NAME = re.compile(r"[A-Za-z0-9._-]+")
TORCH_EXTRAS = "cublas,cudart,cufft,cufile,cupti,curand,cusolver,cusparse,nvjitlink,nvrtc,nvtx"
TORCH = {
    "2.11.0": "13.0.2",
    "2.14.1": "13.0.3",
    "2.15.0": "13.2.2",
}  # release -> its pin of cuda-toolkit
TOOLKITS = {  # release of cuda-toolkit -> NVRTC and crt, runtime, CCCL, everything else
    "12.9.1": ("12.9.86", "12.9.79", "12.9.27", "12.9.1"),
    "13.0.2": ("13.0.88", "13.0.96", "13.0.85", "13.0.2"),
    "13.0.3.0": ("13.0.88", "13.0.96", "13.0.85", "13.0.2"),
    "13.2.2": ("13.2.86", "13.2.86", "13.2.27", "13.2.2"),
    "13.5.0": ("13.5.37", "13.5.37", "13.3.5.0.6", "13.5.37"),
}


@dataclass(frozen=True)
class Stub:
    """An empty package."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    extras: tuple[str, ...] = field(default=())

    def files(self) -> dict[str, str]:
        info = f"{self.name.replace('-', '_')}-{self.version}.dist-info"
        metadata = [
            f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}",
            *(f"Provides-Extra: {extra}" for extra in self.extras),
            *(f"Requires-Dist: {requirement}" for requirement in self.requires),
        ]
        return {
            f"{info}/METADATA": "\n".join(metadata) + "\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: stub\nRoot-Is-Purelib: true\n"
            "Tag: py3-none-any\n",
            f"{info}/RECORD": "",
            f"{info}/INSTALLER": "pip\n",
        }

    def wheel(self, folder: Path) -> None:
        with zipfile.ZipFile(
            folder / f"{self.name.replace('-', '_')}-{self.version}-py3-none-any.whl", "w"
        ) as file:
            for name, text in self.files().items():
                file.writestr(name, text)

    def install(self, folder: Path) -> None:
        for name, text in self.files().items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)


def _toolkit(version: str) -> list[Stub]:
    """cuda-toolkit, which is pins alone, and the packages that it pins."""
    nvrtc, runtime, cccl, rest = TOOLKITS[version]
    suffix = "-cu12" if version.startswith("12.") else ""
    packages = {
        "nvrtc": ("nvidia-cuda-nvrtc", nvrtc),
        "cudart": ("nvidia-cuda-runtime", runtime),
        "cccl": ("nvidia-cuda-cccl", cccl),
        "crt": ("nvidia-cuda-crt", nvrtc),
        "nvcc": ("nvidia-cuda-nvcc", nvrtc),
        **{
            extra: (f"nvidia-{extra}", rest)
            for extra in TORCH_EXTRAS.split(",")
            if extra not in ("nvrtc", "cudart")
        },
    }
    if suffix:
        del packages["crt"]  # in CUDA 12 it is a part of nvcc
    pins = tuple(
        f"{name}{suffix}=={number}.* ; extra == '{extra}'"
        for extra, (name, number) in packages.items()
    )
    return [
        Stub("cuda-toolkit", version, pins, (*packages, "crt") if suffix else tuple(packages)),
        *(Stub(name + suffix, number) for name, number in packages.values()),
    ]


def _torch(version: str) -> Stub:
    return Stub(
        "torch",
        version,
        (f"cuda-toolkit[{TORCH_EXTRAS}]=={TORCH[version]}", "cuda-bindings<14,>=13.0.3"),
    )


def _greenfast() -> Stub:
    extras = PROJECT["optional-dependencies"]
    optional = tuple(
        f"{requirement} ; extra == '{extra}'"
        for extra, names in extras.items()
        for requirement in names
    )
    return Stub("greenfast", "0.1.0", (*PROJECT["dependencies"], *optional), tuple(extras))


def _others() -> list[Stub]:
    """greenfast's other requirements, in the releases that this suite runs with."""
    ours = {NAME.match(requirement)[0] for requirement in PROJECT["dependencies"]}
    plain = sorted(ours - {"cuda-toolkit", "cuda-bindings", "cuda-core"})
    return [
        *(Stub(name, importlib.metadata.version(name)) for name in plain),
        Stub("cuda-core", "1.2.2", ("cuda-pathfinder>=1.4.2", "numpy")),
        Stub("cuda-pathfinder", "1.9.0"),
        *(
            Stub("cuda-bindings", version, ("cuda-pathfinder>=1.4.2",))
            for version in ("12.9.10", "13.0.3", "13.5.0")
        ),
        Stub("cupy-cuda13x", "14.2.0"),
        Stub("cupy-cuda12x", "14.2.0"),
        Stub("nvidia-ml-py", "13.580.0"),
    ]


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    stubs = [
        _greenfast(),
        *_others(),
        *(stub for version in TOOLKITS for stub in _toolkit(version)),
    ]
    for stub in {(stub.name, stub.version): stub for stub in stubs}.values():
        stub.wheel(folder)
    return folder


def _environment(folder: Path, *installed: Stub) -> Path:
    """The interpreter of a fresh environment in which these are installed."""
    venv.create(folder, with_pip=False, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    for stub in {(stub.name, stub.version): stub for stub in installed}.values():
        stub.install(packages)
    return folder / "bin" / "python"


@pytest.fixture(scope="module", params=quick_first(TORCH, 1))
def beside(request, tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """An environment with PyTorch, and what is installed there."""
    pinned = TORCH[request.param]
    toolkit = next(version for version in TOOLKITS if version in (pinned, pinned + ".0"))
    left_out = (
        "nvidia-cuda-crt",
        "nvidia-cuda-cccl",
        "nvidia-cuda-nvcc",
    )  # which PyTorch does not need
    stubs = [
        _torch(request.param),
        *(stub for stub in _toolkit(toolkit) if stub.name not in left_out),
        Stub("cuda-bindings", "13.0.3", ("cuda-pathfinder>=1.4.2",)),
        Stub("cuda-pathfinder", "1.9.0"),
    ]
    return _environment(tmp_path_factory.mktemp("beside"), *stubs), {
        stub.name: stub.version for stub in stubs
    }


def _clean_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "UV_", "PYTHONPATH"))
    }


def _pip(index: Path, python: Path, *requirements: str) -> tuple[int, dict[str, str], str]:
    """pip's exit code, what it would install, and what it says."""
    report = python.parent / "report.json"
    report.unlink(missing_ok=True)
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--isolated",
            "--python",
            python,
            "install",
            "--no-index",
            "--find-links",
            index,
            "--dry-run",
            "--quiet",
            "--report",
            report,
            *requirements,
        ],
        capture_output=True,
        text=True,
        env=_clean_environment(),
        check=False,
    )
    installed = json.loads(report.read_text())["install"] if report.is_file() else []
    return (
        ended.returncode,
        {package["metadata"]["name"]: package["metadata"]["version"] for package in installed},
        ended.stderr,
    )


@pytest.mark.slow
@pytest.mark.parametrize("requirement", quick_first(["greenfast", "greenfast[cuda13]"], 1))
def test_pip_changes_no_package_of_pytorch(index, beside, requirement):
    python, installed = beside
    code, new, output = _pip(index, python, requirement)
    assert code == 0, output
    assert "greenfast" in new and not new.keys() & installed.keys()
    release = installed["nvidia-cuda-nvrtc"].rsplit(".", 1)[0]
    assert new["nvidia-cuda-crt"].startswith(release + "."), (
        "headers of another release than the library"
    )


def test_uv_changes_no_package_of_pytorch(index, beside, tmp_path):
    uv = pytest.importorskip("uv", reason="uv is not installed; it comes with the extra test")
    python, installed = beside
    ended = subprocess.run(
        [
            uv.find_uv_bin(),
            "pip",
            "install",
            "--python",
            python,
            "--no-config",
            "--offline",
            "--no-index",
            "--find-links",
            index,
            "--cache-dir",
            tmp_path,
            "--dry-run",
            "greenfast",
        ],
        capture_output=True,
        text=True,
        env=_clean_environment(),
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    changes = re.findall(r"^ ([-+~]) ([^=\s]+)", ended.stderr, re.MULTILINE)
    assert ("+", "greenfast") in changes
    assert not [name for sign, name in changes if sign != "+" or name in installed]


@pytest.mark.slow
def test_a_fresh_environment_gets_the_newest_release(index, tmp_path):
    code, new, output = _pip(index, _environment(tmp_path), "greenfast")
    assert code == 0, output
    assert (
        new["nvidia-cuda-nvrtc"]
        == new["nvidia-cuda-runtime"]
        == new["nvidia-cuda-crt"]
        == "13.5.37"
    )


@pytest.mark.slow
def test_the_extra_for_older_drivers_brings_its_own_release(index, tmp_path):
    python = _environment(tmp_path)
    code, new, output = _pip(index, python, "greenfast[cuda12]")
    assert code == 0, output
    assert new["cuda-toolkit"] == "12.9.1" and new["nvidia-cuda-nvrtc-cu12"].startswith("12.9.")
    code, _, output = _pip(index, python, "greenfast[cuda12,cuda13]")
    assert code != 0 and "conflicting dependencies" in output
