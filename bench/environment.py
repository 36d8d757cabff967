"""The environment that a result was measured in; every file in bench/results/ carries it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import time
from pathlib import Path

from bench.results import ROOT, Row, write_result
from greenfast.search.cores import usable_cores
from greenfast.search.targets.base import Target
from greenfast.search.toolchain import Toolchain

WHEELS = ("optuna", "numpy", "sqlalchemy", "cuda-core", "nvidia-cuda-nvrtc")


def environment() -> Row:
    """Machine, versions and commit of a result of this machine; no host names, no paths."""
    return {
        **basic_environment(),
        "commit": _first_line("git", "rev-parse", "--short", "HEAD"),
        "processor": _processor(),
        "load_1m": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "compiler": _first_line(os.environ.get("GREENFAST_CXX", "g++"), "--version"),
        **{name: importlib.metadata.version(name) for name in WHEELS},
    }


def target_environment(toolchain: Toolchain, target: Target) -> Row:
    """The environment of a result that a target gave: date, cores, and both identities."""
    return {**basic_environment(), **dict(toolchain.identity), **dict(target.identity())}


def basic_environment() -> Row:
    """Date, cores and Python, which every environment has."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": usable_cores(),
        "python": platform.python_version(),
    }


def publish(name: str, rows: list[Row], *, save: bool) -> None:
    """Print rows with this machine's environment as JSON; `save` also stores them as a result."""
    value = {"environment": environment(), "rows": rows}
    print(json.dumps(value, indent=1))
    if save:
        write_result(name, value)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _first_line(*command: str) -> str:
    try:
        process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return process.stdout.splitlines()[0] if process.stdout else "unknown"
