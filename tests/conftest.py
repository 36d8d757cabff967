"""What all tests share: real kernels, a real toolchain, a tiny kernel folder to break."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import sys
from functools import cache
from pathlib import Path

import cpu_report
import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from httpx._transports import default

import greenfast.app  # noqa: F401 - before NumPy: it sets threads and collections
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.emulator.target import EmulatorTarget
from greenfast.search.toolchain import Toolchain

ALBUM = Path(__file__).parent / "kernels"


# The tests start hundreds of processes. Each would compile all of greenfast where the environment
# says that Python shall keep no bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# pytest loads readline, which sets these for the processes of pytest-xdist. A command would fold
# the tables that it writes to a pipe.
for variable in ("COLUMNS", "LINES"):
    os.environ.pop(variable, None)


# httpx waits 5 s for an answer unless told otherwise: too little where several suites share two
# cores.
for wait in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, wait, 60.0)
# Every client of httpx reads all certificates of the machine, for 40 ms, though no test needs one.
default.create_ssl_context = cache(default.create_ssl_context)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    if config.getoption("dist") != "loadfile":
        return None
    from file_scheduling import FileScheduling

    return FileScheduling(config, log)


def pytest_addoption(parser):
    cpu_report.add_option(parser)


def pytest_configure(config):
    cpu_report.register(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """One process after the other: what the first one compiles, the others load."""
    with open(__file__) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return (yield)


def pytest_collection_finish():
    """Thousands of collected tests stay to the end: no collection need look through them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return Catalogue.from_environment()


@pytest.fixture(scope="session")
def album() -> Catalogue:
    """The kernels of tests/kernels/, a small one for each way to fail, and the shipped ones."""
    from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES

    return Catalogue([REPOSITORY_TEMPLATES, ALBUM])


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory) -> Path:
    """A cache folder that all test processes share: each source is built once in a run.

    GREENFAST_TEST_CACHE names a folder that is kept from run to run. Everything in it lies under
    the digest of what it was made of.
    """
    if kept := os.environ.get("GREENFAST_TEST_CACHE"):
        folder = Path(kept).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "artifacts"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def stub_library(tmp_path_factory):
    """The driver that records launches and runs nothing, for tests of the runtime."""
    from runtime_bundles import built_stub

    return built_stub(tmp_path_factory.mktemp("stub"))


@pytest.fixture(scope="session")
def toolchain(artifacts):
    toolchain = Toolchain(artifacts, 2)
    yield toolchain
    toolchain.close()


@pytest.fixture(scope="module")
def emulator(artifacts, catalogue):
    """The emulator of an H200, for the shipped kernels. Other modules have one of their own."""
    target = open_target("emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 1))
    target.prepare()
    yield target
    target.close()


@pytest.fixture
def broken_kernel(tmp_path):
    """`broken_kernel(file, old, new)`: a catalogue of the album's axpy with one text replaced."""
    folder = tmp_path / "templates" / "axpy"
    shutil.copytree(ALBUM / "axpy", folder)

    def damage(file: str, old: str, new: str) -> Catalogue:
        path = folder / file
        text = path.read_text()
        assert old in text, f"{old!r} is not in {file}"
        path.write_text(text.replace(old, new))
        return Catalogue([tmp_path / "templates"])

    return damage


@pytest.fixture(scope="module")
def emulator_target(artifacts, catalogue):
    """An emulator of one worker, of which a file's tests check whole programs."""
    emulator = EmulatorTarget("h200", artifacts, catalogue.include_dirs, 1, 20.0)
    yield emulator
    emulator.close()
