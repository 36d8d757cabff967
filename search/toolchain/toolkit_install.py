"""Installing a CUDA toolkit for greenfast alone, beside the packages of the environment."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from greenfast.search.errors import Fault
from greenfast.search.toolchain.nvrtc import Toolchain
from greenfast.search.toolchain.toolkit import (
    RELEASE,
    TOOLKIT_WHEELS,
    Place,
    Toolkit,
    find_toolkit,
    private_folder,
)

DOWNLOAD_ADVICE = (
    "check the network and pip's settings; for a machine without a network, run "
    f"`pip download --only-binary=:all: --dest FOLDER '{TOOLKIT_WHEELS}'` on another and pass "
    "--wheels FOLDER"
)


def install_toolkit(data: Path, wheels: Path | None = None) -> Toolkit:
    """Install the pinned release below the data folder and return it.

    pip or uv downloads it, or takes it from `wheels`, a folder of wheel files. It is put in place
    only after it has compiled a known kernel; an earlier one is then replaced. Raises Fault when
    neither pip nor uv is there, the download fails, or the toolkit does not compile correctly.
    """
    installed = private_folder(data)
    try:
        installed.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=installed.parent) as scratch:
            new, old = Path(scratch) / "toolkit", Path(scratch) / "old"
            _run([*_installer(), "--target", str(new), *_source(wheels), TOOLKIT_WHEELS])
            verify(Place(new, "being installed"), Path(scratch) / "cache")
            if installed.exists():
                os.rename(installed, old)
            os.rename(new, installed)
    except OSError as error:
        raise _failed(f"{installed.parent} cannot be written: {error.strerror}") from error
    return find_toolkit(Place(installed, "just installed"))


def verify(place: Place, cache: Path) -> None:
    """Compile the known kernel with the toolkit at `place`; Fault when the result is wrong."""
    toolchain = Toolchain(cache, 1, place=place)
    try:
        toolchain.require_correct_code()
    finally:
        toolchain.close()


def _installer() -> list[str]:
    """The command that installs packages into a folder: pip's, else uv's."""
    if importlib.util.find_spec("pip") is not None:
        quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--retries", "2"]
        return [sys.executable, "-P", "-m", "pip", "install", "--no-user", *quiet]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    raise _failed(
        "neither pip nor uv is installed",
        f"run `{sys.executable} -m ensurepip`, or install uv",
    )


def _source(wheels: Path | None) -> list[str]:
    binary = ["--only-binary", ":all:"]
    return binary if wheels is None else [*binary, "--no-index", "--find-links", str(wheels)]


def _run(command: list[str]) -> None:
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
        raise _failed(lines[-1] if lines else f"exit code {ended.returncode}", DOWNLOAD_ADVICE)


def _failed(reason: str, mend: str = "set GREENFAST_DATA to a writable folder") -> Fault:
    return Fault(
        f"CUDA {RELEASE} cannot be installed: {reason}", code="toolkit_not_installed", mend=mend
    )
