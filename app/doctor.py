"""What greenfast needs of this machine, and what is there."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass

from app.settings import Settings
from app.wiring import Services
from search.errors import GreenfastError
from search.targets.cuda import gpu_count

LEAST_PYTHON = (3, 11)
LEAST_DISK_BYTES = 1 << 30


@dataclass(frozen=True)
class Check:
    """One thing: there or missing, needed or not for the emulator path."""

    name: str
    needed: bool
    ok: bool
    detail: str
    mend: str = ""


def examine(settings: Settings) -> tuple[Check, ...]:
    """Every check, each on its own: one that fails does not hide the others."""
    services = Services(settings)
    try:
        return (
            _python(),
            _check("NVRTC and CUDA headers", True, lambda: _toolchain(services)),
            _check("host compiler", True, _host_compiler),
            _isolation(),
            _check("kernels", True, lambda: ", ".join(services.catalogue.names()) or "none"),
            _check("data folder", True, lambda: _data_folder(settings)),
            _disk(settings),
            _check("database", True, lambda: _database(services)),
            _gpu(), _wheel("CuPy", "cupy"), _wheel("NVML", "pynvml"))
    finally:
        services.close()


def _check(name: str, needed: bool, look: Callable[[], str]) -> Check:
    try:
        return Check(name, needed, True, look())
    except GreenfastError as error:
        return Check(name, needed, False, error.message, error.mend)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    ok = sys.version_info >= LEAST_PYTHON
    return Check("Python", True, ok, version, "" if ok else "install Python 3.11 or newer")


def _toolchain(services: Services) -> str:
    identity = dict(services.toolchain.identity)
    _ = services.toolchain.include_dirs
    return ", ".join(f"{name} {version}" for name, version in identity.items() if name != "options")


def _host_compiler() -> str:
    from search.targets.emulator.host_compiler import find_host_compiler
    found = find_host_compiler()
    return f"{found.path} {found.version}"


def _isolation() -> Check:
    from search.targets.emulator.isolation import has_seccomp, landlock_version
    landlock = landlock_version()
    there = [*(["seccomp: no network, no new processes"] if has_seccomp() else []),
             *([f"Landlock {landlock}: no files of others"] if landlock else [])]
    return Check("isolation of candidates", False, len(there) == 2, "; ".join(there) or "limits of processes only",
                 "" if len(there) == 2 else "limits hold, but candidates reach the network or files; run in a container")


def _data_folder(settings: Settings) -> str:
    settings.prepare_data()
    return str(settings.data.absolute())


def _disk(settings: Settings) -> Check:
    folder = settings.data.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    return Check("disk space", True, free >= LEAST_DISK_BYTES, f"{free / 2**30:.1f} GiB free",
                 "" if free >= LEAST_DISK_BYTES else "free some, or set GREENFAST_DATA to a folder elsewhere")


def _database(services: Services) -> str:
    stats = services.store.stats()
    return ", ".join(f"{name} {value}" for name, value in stats.items() if isinstance(value, (str, int)))


def _gpu() -> Check:
    count = gpu_count()
    return Check("NVIDIA GPU", False, count > 0, f"{count} visible to the driver" if count else "none visible",
                 "" if count else "not needed; install the NVIDIA driver to measure on a GPU")


def _wheel(name: str, module: str) -> Check:
    """An optional package of the extra `cuda13`."""
    if importlib.util.find_spec(module) is None:
        return Check(name, False, False, "not installed", "not needed; pip install 'greenfast[cuda13]'")
    versions = importlib.metadata.packages_distributions().get(module, [])
    return Check(name, False, True, importlib.metadata.version(versions[0]) if versions else "installed")
