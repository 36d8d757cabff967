"""`greenfast doctor` names each missing requirement and its remedy."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from slow_cases import quick_first

DRIVER = """
int cuInit(unsigned flags) { return INIT; }
int cuDriverGetVersion(int* version) { *version = VERSION; return 0; }
int cuDeviceGetCount(int* count) { *count = 0; return 0; }
"""
needs_no_gpu = pytest.mark.skipif(
    shutil.which("nvidia-smi") is not None,
    reason="AN NVIDIA DRIVER IS INSTALLED: states without one were not looked at",
)


@pytest.fixture
def driver(tmp_path) -> Callable[..., Path]:
    """Compiles a driver's library that answers as told; gives its folder."""

    def build(*, init: int, version: int) -> Path:
        (tmp_path / "driver.c").write_text(DRIVER)
        values = (f"-DINIT={init}", f"-DVERSION={version}")
        subprocess.run(
            ["cc", "-shared", "-fPIC", *values, "-o", "libcuda.so.1", "driver.c"],
            cwd=tmp_path,
            check=True,
        )
        return tmp_path

    return build


def examined(home, **environment) -> dict[str, dict]:
    ended = home.run("doctor", "--json", **environment)
    assert ended.code == 0, ended.err
    return {check["name"]: check for check in ended.json}


def test_everything_is_looked_at_and_what_is_missing_has_a_mend(home):
    checks = examined(home)
    assert {
        "Python",
        "NVRTC and CUDA headers",
        "host compiler",
        "data folder",
        "disk space",
        "database",
        "NVIDIA driver",
        "NVIDIA GPU",
        "CuPy",
        "NVML",
        "peers",
        "Nsight Compute",
        "compute-sanitizer",
        "browser",
    } <= checks.keys()
    assert all(check["mend"] for check in checks.values() if check["status"] == "missing")
    assert all(check["status"] == "ok" for check in checks.values() if check["needed"])


@needs_no_gpu
def test_a_machine_without_a_driver_is_told_that_none_is_needed(home):
    check = examined(home)["NVIDIA driver"]
    assert (
        check["status"] == "missing"
        and not check["needed"]
        and "to measure on a GPU only" in check["mend"]
    )


@needs_no_gpu
@pytest.mark.parametrize(
    ("init", "version", "detail", "mend"),
    quick_first(
        [
            (0, 12080, "supports CUDA 12.8, but NVRTC 13", "supports CUDA 13"),
            (100, 13000, "sees no GPU", "CUDA_VISIBLE_DEVICES"),
            (803, 13000, "CUDA error 803", "reboot"),
            (0, 13000, "supports CUDA 13.0", ""),
        ],
        2,
    ),
)
@pytest.mark.slow
def test_a_driver_that_is_of_no_use_says_why(home, driver, init, version, detail, mend):
    folder = driver(init=init, version=version)
    check = examined(home, LD_LIBRARY_PATH=str(folder))["NVIDIA driver"]
    assert (
        detail in check["detail"]
        and mend in check["mend"]
        and (check["status"] == "ok") == (not mend)
    )


@pytest.mark.slow
@needs_no_gpu
def test_a_missing_toolkit_has_a_row_of_its_own_and_does_not_hide_the_driver(home, driver):
    folder = driver(init=0, version=13000)
    ended = home.run(
        "doctor", "--json", LD_LIBRARY_PATH=str(folder), GREENFAST_CUDA="/no/such/toolkit"
    )
    checks = {check["name"]: check for check in ended.json}
    assert checks["NVRTC and CUDA headers"]["status"] == "missing"
    assert "/no/such/toolkit" in checks["NVRTC and CUDA headers"]["detail"]
    assert checks["NVIDIA driver"]["status"] == "ok"
    assert checks["NVIDIA driver"]["detail"] == "supports CUDA 13.0"


def test_a_compiler_that_is_missing_is_needed_and_said(home):
    ended = home.run("doctor", "--json", GREENFAST_CXX="/no/such/compiler")
    (check,) = (check for check in ended.json if check["name"] == "host compiler")
    assert ended.code == 3 and check["status"] == "missing" and check["needed"] and check["mend"]


def test_an_interpreter_for_peers_that_is_none_is_said(home):
    check = examined(home, GREENFAST_PEERS_PYTHON="/no/such/python")["peers"]
    assert (
        check["status"] == "missing"
        and check["detail"] == "/no/such/python is not a working Python"
        and "GREENFAST_PEERS_PYTHON" in check["mend"]
    )


def test_an_interpreter_for_peers_that_is_too_old_is_said(home, tmp_path):
    """A Python that calls itself 3.9 and has every package."""
    old = tmp_path / "python3.9"
    start = "import importlib.util as u, sys; sys.version_info = (3, 9, 18, 'final', 0); "
    start += "u.find_spec = lambda name: name; exec(sys.argv[1])"
    old.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{start}" "$2"\n')
    old.chmod(0o755)
    check = examined(home, GREENFAST_PEERS_PYTHON=str(old))["peers"]
    assert check["status"] == "missing"
    assert check["detail"] == f"{old} is Python 3.9, which is too old"
    assert "Python 3.11 or newer" in check["mend"] and "GREENFAST_PEERS_PYTHON" in check["mend"]


def test_the_settings_in_force_are_listed_without_secrets(home):
    ended = home.run("doctor", GREENFAST_TOKEN="0123456789abcdef")
    assert (
        "GREENFAST_WINDOW" in ended.out
        and "GREENFAST_TOKEN" in ended.out
        and "0123456789" not in ended.out
    )
    from greenfast.app.cli.doctor_checks import _shown

    assert (
        _shown("database_url", "postgresql+psycopg://user:pass@host/name")
        == "postgresql+psycopg://user:(hidden)@host/name"
    )
