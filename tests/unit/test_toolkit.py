"""Choice of NVRTC: the installed one by path, with its own headers, and no known-bad release."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from greenfast.search.errors import Fault
from greenfast.search.toolchain import Toolchain, known_answer
from greenfast.search.toolchain.toolkit import (
    COMPONENTS,
    INSTALL_COMMAND,
    LAYOUTS,
    TOOLKIT_VARIABLE,
    Place,
    find_toolkit,
    layout_of,
    private_folder,
    toolkit_place,
)


def _install(folder: Path, wheel: str, version: str) -> None:
    """The metadata of a package, as pip leaves it."""
    info = folder / f"{wheel.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {wheel}\nVersion: {version}\n")


def _toolkit_folder(
    folder: Path, layout=LAYOUTS[0], versions=("13.5.37", "13.5.37", "13.5.37", "13.3.5.0.6")
) -> Path:
    for wheel, version in zip(layout.wheels, versions, strict=True):
        _install(folder, wheel, version)
    library = folder / "nvidia" / layout.library
    library.mkdir(parents=True)
    for name in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.5", "libnvrtc.alt.so.13"):
        (library / name).touch()
    for name in layout.include:
        (folder / "nvidia" / name).mkdir(parents=True, exist_ok=True)
    (folder / "nvidia" / layout.include[0] / "cuda_fp16.h").touch()
    return folder


def test_the_library_and_its_headers_are_those_of_this_environment():
    toolkit = find_toolkit()
    assert [Path(path).is_absolute() and Path(path).is_file() for path in toolkit.libraries] == [
        True,
        True,
    ]
    assert dict(toolkit.versions).keys() == set(COMPONENTS)
    assert "builtins" in toolkit.libraries[0] and "builtins" not in toolkit.libraries[1]


@pytest.mark.parametrize("layout", LAYOUTS, ids=("cuda13", "cuda12"))
def test_a_folder_of_its_own_is_used_instead_of_the_environment(tmp_path, monkeypatch, layout):
    monkeypatch.setenv(TOOLKIT_VARIABLE, str(_toolkit_folder(tmp_path, layout)))
    toolkit = find_toolkit()
    assert all(
        path.startswith(str(tmp_path)) for path in (*toolkit.libraries, *toolkit.include_dirs)
    )
    assert toolkit.libraries[1].endswith("libnvrtc.so.13")  # not the alternative build beside it
    assert len(toolkit.include_dirs) == len(layout.include) and toolkit.nvrtc_version == "13.5.37"


def test_the_toolkit_of_the_data_folder_comes_before_the_environments(tmp_path, monkeypatch):
    monkeypatch.delenv(TOOLKIT_VARIABLE, raising=False)
    assert toolkit_place(tmp_path).folder is None
    _toolkit_folder(private_folder(tmp_path))
    place = toolkit_place(tmp_path)
    assert place.folder == private_folder(tmp_path) and INSTALL_COMMAND in place.reason
    assert all(path.startswith(str(place.folder)) for path in find_toolkit(place).libraries)
    monkeypatch.setenv(TOOLKIT_VARIABLE, str(tmp_path / "other"))
    assert toolkit_place(tmp_path).folder == tmp_path / "other"


def test_with_both_versions_of_cuda_13_is_taken(tmp_path):
    for layout in LAYOUTS:
        _install(tmp_path, layout.wheels[0], "1.0")
    assert layout_of(Place(tmp_path, "a test")) is LAYOUTS[0]
    shutil.rmtree(tmp_path / "nvidia_cuda_nvrtc-1.0.dist-info")
    assert layout_of(Place(tmp_path, "a test")) is LAYOUTS[1]


def test_a_missing_package_is_named(tmp_path):
    with pytest.raises(Fault, match="nvidia-cuda-nvrtc is not installed in") as caught:
        find_toolkit(Place(tmp_path, "a test"))
    assert caught.value.code == "toolchain_missing" and INSTALL_COMMAND in caught.value.mend
    _install(tmp_path, "nvidia-cuda-nvrtc", "13.0.88")
    with pytest.raises(Fault, match="nvidia-cuda-runtime is not installed"):
        find_toolkit(Place(tmp_path, "a test"))


def test_headers_of_another_release_are_refused_by_name(tmp_path):
    _toolkit_folder(tmp_path, versions=("13.0.88", "13.5.37", "13.5.37", "13.3.5.0.6"))
    with pytest.raises(
        Fault, match=r"nvidia-cuda-nvrtc 13.0.88, nvidia-cuda-runtime 13.5.37"
    ) as caught:
        find_toolkit(Place(tmp_path, "a test"))
    assert caught.value.code == "toolchain_mixed" and "==13.0.*" in caught.value.mend


def test_what_pytorch_brings_is_one_release(tmp_path):
    """13.0.2: the runtime's third number is not NVRTC's."""
    _toolkit_folder(tmp_path, versions=("13.0.88", "13.0.96", "13.0.88", "13.0.85"))
    assert find_toolkit(Place(tmp_path, "a test")).nvrtc_version == "13.0.88"


@pytest.mark.slow
def test_a_library_on_the_search_path_is_not_loaded(tmp_path, monkeypatch):
    """Empty libraries of the same names on LD_LIBRARY_PATH do not replace the installed ones."""
    decoys = tmp_path / "decoys"
    decoys.mkdir()
    for path in find_toolkit().libraries:
        decoy = decoys / Path(path).name
        subprocess.run(
            [
                "cc",
                "-shared",
                "-fPIC",
                "-x",
                "c",
                "/dev/null",
                f"-Wl,-soname,{decoy.name}",
                "-o",
                decoy,
            ],
            check=True,
        )
    monkeypatch.setenv("LD_LIBRARY_PATH", str(decoys))
    toolchain = Toolchain(tmp_path / "cache", 1)
    try:
        toolchain.require_correct_code()
        (child,) = toolchain.children.all
        loaded = {
            line.split()[-1]
            for line in Path(f"/proc/{child.process.pid}/maps").read_text().splitlines()
            if "libnvrtc" in line
        }
        assert loaded == {os.path.realpath(path) for path in toolchain.toolkit.libraries}
    finally:
        toolchain.close()


def test_the_compiler_of_this_environment_gives_the_known_answer(toolchain):
    toolchain.require_correct_code()


def test_a_compiler_that_makes_the_code_which_ran_wrong_is_refused(toolchain, monkeypatch):
    """This compiler's code plays the wrong code, which was recorded from NVRTC 13.0.88."""
    compile_known = toolchain.compile
    seen = []
    monkeypatch.setattr(
        toolchain, "compile", lambda *given: seen.append(compile_known(*given)) or seen[-1]
    )
    monkeypatch.setattr(toolchain, "_is_checked", False)
    toolchain.require_correct_code()
    digest = known_answer.code_digest(seen[0].code)
    assert (
        known_answer.section(seen[0].code, ".text.attention_wmma")
        and digest not in known_answer.WRONG_CODE
    )
    monkeypatch.setattr(toolchain, "_is_checked", False)
    monkeypatch.setitem(known_answer.WRONG_CODE, digest, "every output is 0")
    with pytest.raises(
        Fault, match=r"compiles a known kernel to wrong code .every output is 0."
    ) as caught:
        toolchain.require_correct_code()
    assert caught.value.code == "toolchain_wrong" and INSTALL_COMMAND in caught.value.mend
