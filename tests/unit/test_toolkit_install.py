"""`greenfast toolkit install`: a toolkit of its own for greenfast, from stub wheels, offline."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import zipfile
from pathlib import Path

import pytest

from greenfast.app.cli.main import run
from greenfast.search.errors import Fault
from greenfast.search.toolchain import toolkit_install
from greenfast.search.toolchain.toolkit import (
    COMPONENTS,
    TOOLKIT_VARIABLE,
    find_toolkit,
    private_folder,
    toolkit_place,
)
from greenfast.search.toolchain.toolkit_install import install_toolkit

VERSIONS = dict(zip(COMPONENTS, ("13.5.37", "13.5.37", "13.5.37", "13.3.5.0.6"), strict=True))
EXTRAS = dict(zip(COMPONENTS, ("nvrtc", "cudart", "crt", "cccl"), strict=True))
FILES = {
    "nvidia-cuda-nvrtc": ("lib/libnvrtc.so.13", "lib/libnvrtc-builtins.so.13.5"),
    "nvidia-cuda-runtime": ("include/cuda_fp16.h",),
}


def _wheel(folder: Path, name: str, version: str, metadata: str, files: tuple[str, ...]) -> None:
    stem = f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as file:
        file.writestr(
            f"{stem}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}",
        )
        file.writestr(
            f"{stem}.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: stub\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr(f"{stem}.dist-info/RECORD", "")
        for path in files:
            file.writestr(f"nvidia/cu13/{path}", "not a library")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for name, version in VERSIONS.items():
        _wheel(folder, name, version, "", FILES.get(name, ()))
    metadata = "".join(
        f"Provides-Extra: {extra}\nRequires-Dist: {name}=={VERSIONS[name]} ; extra == '{extra}'\n"
        for name, extra in EXTRAS.items()
    )
    _wheel(folder, "cuda-toolkit", "13.5.0", metadata, ())
    return folder


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("GREENFAST_DATA", str(tmp_path / "data"))
    monkeypatch.delenv(TOOLKIT_VARIABLE, raising=False)
    return tmp_path / "data"


@pytest.mark.slow
def test_the_installed_toolkit_is_used_and_the_environment_keeps_its_packages(
    wheels, data, monkeypatch, capsys
):
    verified = []
    monkeypatch.setattr(
        toolkit_install,
        "verify",
        lambda place, cache: verified.append((find_toolkit(place), private_folder(data).exists())),
    )
    installed = {name: importlib.metadata.version(name) for name in COMPONENTS}
    assert run(["toolkit", "install", "--wheels", str(wheels), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["folder"] == str(private_folder(data)) and shown["versions"] == VERSIONS
    assert [was_in_place for _, was_in_place in verified] == [False], "checked before it is used"
    toolkit = find_toolkit(toolkit_place(data))
    assert toolkit.place.folder == private_folder(data)
    assert all(Path(path).is_file() for path in toolkit.libraries)
    assert {name: importlib.metadata.version(name) for name in COMPONENTS} == installed
    assert [path.name for path in private_folder(data).parent.iterdir()] == ["13.5"]


@pytest.mark.slow
def test_a_toolkit_that_does_not_compile_leaves_the_earlier_one_in_place(wheels, data):
    earlier = private_folder(data) / "earlier"
    earlier.mkdir(parents=True)
    with pytest.raises(Fault) as caught:  # its libraries hold no code
        install_toolkit(data, wheels)
    assert caught.value.code == "child_lost"
    assert earlier.is_dir() and list(private_folder(data).parent.iterdir()) == [earlier.parent]


@pytest.mark.slow
def test_a_failed_download_ends_with_a_sentence_and_advice(tmp_path, data, capsys):
    (tmp_path / "empty").mkdir()
    assert run(["toolkit", "install", "--wheels", str(tmp_path / "empty"), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "toolkit_not_installed" and "cuda-toolkit" in error["message"]
    assert "pip download" in error["mend"] and not private_folder(data).exists()


def test_uv_takes_the_place_of_pip(wheels, data, tmp_path, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pip" else find_spec(name)
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Fault, match="neither pip nor uv is installed"):
        install_toolkit(data, wheels)
    uv = tmp_path / "uv"
    uv.write_text('#!/bin/sh\necho "$@" > "$0.arguments"\necho "error: no route" >&2\nexit 2\n')
    uv.chmod(0o755)
    with pytest.raises(Fault, match="error: no route"):
        install_toolkit(data, wheels)
    arguments = (tmp_path / "uv.arguments").read_text()
    assert arguments.startswith("pip install ") and f"--find-links {wheels}" in arguments


@pytest.mark.slow
def test_the_command_shows_the_toolkit_of_the_environment(capsys):
    assert run(["toolkit", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["folder"] is None and shown["status"] == "ok"
    assert shown["versions"].keys() == set(COMPONENTS)
