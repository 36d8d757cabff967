"""Everything that greenfast needs of a machine, and whether this machine has it."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields

from greenfast.app.settings import Settings
from greenfast.app.views.own_kernels import own_folders, own_problems
from greenfast.app.wiring import Services
from greenfast.search.children import safe_path
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.kernels.catalogue import HERE, PATH_VARIABLE
from greenfast.search.targets.cuda import driver, gpu_count

LEAST_PYTHON = (3, 11)
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PEERS_PROBE = (  # runs in Pythons of any age
    "import importlib.util as u, sys; print('%d.%d' % sys.version_info[:2]); "
    "print(*(n for n in ('torch', 'cupy', 'ml_dtypes') if not u.find_spec(n)))"
)
CUDA_TOOLKIT = "install the CUDA toolkit, or add its bin folder to PATH"
LEAST_DISK_BYTES = 1 << 30


@dataclass(frozen=True)
class Check:
    """One requirement; `needed`: searches on the emulator do not work without it."""

    name: str
    needed: bool
    ok: bool
    detail: str
    mend: str = ""
    otherwise: str = "absent"  # the word for a check that is neither ok nor needed


def settings_in_force(settings: Settings) -> tuple[tuple[str, str, str], ...]:
    """(variable, value, purpose) of every setting; a secret is shown as set or not set."""
    return tuple(
        (
            field.metadata["variable"],
            _shown(field.name, getattr(settings, field.name)),
            field.metadata["doc"],
        )
        for field in fields(Settings)
    )


def _shown(name: str, value: object) -> str:
    if name.endswith("token"):
        return "(set)" if value else "(not set)"
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:(hidden)@", text) or "(not set)"


def examine(settings: Settings) -> tuple[Check, ...]:
    """Every check; one that fails does not hide the others."""
    services = Services(settings)
    try:
        return (
            _python(),
            _check("NVRTC and CUDA headers", True, lambda: _toolchain(services)),
            _check("host compiler", True, _host_compiler),
            _isolation(),
            _check("kernels", True, lambda: ", ".join(services.catalogue.names()) or "none"),
            _own_kernels(services),
            _check("data folder", True, lambda: _data_folder(settings)),
            _disk(settings),
            _check("database", True, lambda: _database(services)),
            _driver(services),
            _check("NVIDIA GPU", False, _gpus),
            _wheel("CuPy", "cupy", "to measure on a GPU"),
            _wheel("NVML", "pynvml", "to see clocks and other work on the GPU"),
            _peers(),
            _tool("Nsight Compute", ("ncu",), "for `greenfast profile`", CUDA_TOOLKIT),
            _tool(
                "compute-sanitizer",
                ("compute-sanitizer",),
                "for `greenfast profile --sanitizer`",
                CUDA_TOOLKIT,
            ),
            _tool("browser", BROWSERS, "for tests/browser", "Debian: apt-get install chromium"),
        )
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
    return Check("Python", True, ok, version, "" if ok else f"install {_least_python()}")


def _least_python() -> str:
    return f"Python {'.'.join(map(str, LEAST_PYTHON))} or newer"


def _toolchain(services: Services) -> str:
    identity = dict(services.toolchain.identity)
    services.toolchain.require_correct_code()
    return ", ".join(f"{name} {version}" for name, version in identity.items() if name != "options")


def _host_compiler() -> str:
    from greenfast.search.targets.emulator.host_compiler import find_host_compiler

    compiler = find_host_compiler()
    return f"{compiler.path} {compiler.version}"


def _isolation() -> Check:
    from greenfast.search.targets.emulator.isolation import isolation

    machine = isolation()
    detail = "; ".join(filter(None, (machine.held, machine.not_held)))
    return Check(
        "isolation of candidates",
        False,
        machine.is_complete,
        detail,
        "" if machine.is_complete else "use Linux 5.13 or newer, or run trusted sources only",
    )


def _own_kernels(services: Services) -> Check:
    """The folders of the user's kernels; one that is broken harms no other."""
    name = "kernels of your own"
    try:
        folders = own_folders(services.catalogue)
        problems = own_problems(services.catalogue)
    except GreenfastError as error:
        return Check(name, False, False, error.message, error.mend)
    none = f"none in ./{HERE}, and none on {PATH_VARIABLE}; `greenfast new kernel NAME` writes one"
    shown = "; ".join((*folders, *problems)) or none
    if problems:
        return Check(name, False, False, shown, "`greenfast lint` shows every problem", "broken")
    return Check(name, False, True, shown)


def _data_folder(settings: Settings) -> str:
    settings.prepare_data()
    return str(settings.data.absolute())


def _disk(settings: Settings) -> Check:
    folder = settings.data.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    return Check(
        "disk space",
        True,
        free >= LEAST_DISK_BYTES,
        f"{free / 2**30:.1f} GiB free",
        ""
        if free >= LEAST_DISK_BYTES
        else "free some space, or set GREENFAST_DATA to a folder on another disk",
    )


def _database(services: Services) -> str:
    stats = services.store.stats()
    return ", ".join(
        f"{name} {value}" for name, value in stats.items() if isinstance(value, (str, int))
    )


# ---- the GPU path ----


def _driver(services: Services) -> Check:
    """The driver, and whether it loads NVRTC's cubins: not cubins of a newer major version.

    A toolkit that is missing has a row of its own.
    """
    state = driver_state()
    if state.version is None:
        return Check("NVIDIA driver", False, False, state.why, state.mend)
    try:
        ours = dict(services.toolchain.identity)["nvidia-cuda-nvrtc"]
    except GreenfastError:
        return Check("NVIDIA driver", False, True, f"supports CUDA {state.version}")
    if major(state.version) < major(ours):
        return Check(
            "NVIDIA driver",
            False,
            False,
            f"supports CUDA {state.version}, but NVRTC {ours} compiles the sources",
            f"install a driver that supports CUDA {major(ours)} (R580 or newer for 13), or "
            "greenfast[cuda12] in a fresh environment",
        )
    return Check("NVIDIA driver", False, True, f"supports CUDA {state.version}")


@dataclass(frozen=True)
class DriverState:
    """`version`: the CUDA version that the driver supports; None: it does not work, and `why`."""

    version: str | None
    why: str = ""
    mend: str = ""


def driver_state(library: str = "libcuda.so.1") -> DriverState:
    """The state of the driver, from its library and without a CUDA context."""
    try:
        loaded = ctypes.CDLL(library)
    except OSError:
        return DriverState(
            None,
            "not installed",
            "needed to measure on a GPU only; install the NVIDIA driver, or start a container "
            "with --gpus all",
        )
    code = loaded.cuInit(0)
    if code == NO_DEVICE:
        return DriverState(
            None, "installed, but sees no GPU", "check CUDA_VISIBLE_DEVICES and `nvidia-smi`"
        )
    if code != 0:
        return DriverState(
            None,
            f"installed, but does not start: CUDA error {code}",
            "run `nvidia-smi`; after a driver update the machine may need a reboot",
        )
    return DriverState(driver.driver_version())


def major(version: str) -> int:
    return int(version.partition(".")[0])


def _gpus() -> str:
    """Each GPU with its name, and whether its peaks are known."""
    if not gpu_count():
        raise UsageError(
            "none visible",
            code="no_gpu",
            mend="needed to measure times only; see the driver above",
        )
    gpus = []
    for number in range(gpu_count()):
        facts = driver.device_of(number)
        known = (
            ""
            if facts.dram_bytes_per_us and facts.tensor_fp16_flop_per_cycle_per_sm
            else ", peaks unknown"
        )
        gpus.append(f"cuda:{number} {facts.title} ({facts.arch}{known})")
    return "; ".join(gpus)


def _wheel(name: str, module: str, purpose: str) -> Check:
    """An optional package of the extras."""
    if importlib.util.find_spec(module) is None:
        supported = driver_state().version
        extra = "cuda12" if supported and major(supported) == 12 else "cuda13"
        return Check(
            name,
            False,
            False,
            "not installed",
            f"needed {purpose} only; pip install 'greenfast[{extra}]'",
        )
    packages = importlib.metadata.packages_distributions().get(module, [])
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)
    return Check(name, False, True, versions or "installed")


def _tool(name: str, commands: tuple[str, ...], purpose: str, mend: str) -> Check:
    """An optional program on PATH."""
    path = next(filter(None, map(shutil.which, commands)), None)
    return Check(
        name,
        False,
        path is not None,
        path or "not on PATH",
        "" if path else f"needed {purpose} only; {mend}",
    )


def _peers() -> Check:
    """A Python in which peers (other people's kernels) can be timed."""
    from greenfast.search.peers.process import PYTHON_VARIABLE, python

    interpreter = python()
    problem, mend = _problem_of(interpreter)
    return Check(
        "peers",
        False,
        not problem,
        f"{interpreter} {problem}".rstrip(),
        f"needed to time PyTorch beside a winner only; {mend}, or name another Python in "
        f"{PYTHON_VARIABLE}"
        if problem
        else "",
    )


def _problem_of(interpreter: str) -> tuple[str, str]:
    """Why peers cannot run in this Python, and the remedy; both empty if they can."""
    try:
        probe = subprocess.run(
            [interpreter, "-c", PEERS_PROBE],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            cwd="/",
            env={**os.environ, **safe_path()},  # imports nothing of the current folder
        )
        version, packages = probe.stdout.splitlines()
        is_old = tuple(map(int, version.split("."))) < LEAST_PYTHON
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return "is not a working Python", f"install {_least_python()} there"
    if is_old:
        return f"is Python {version}, which is too old", f"install {_least_python()}"
    if packages:
        return f"lacks {', '.join(packages.split())}", "install it there"
    return "", ""
