"""What a result was measured on; every file in bench/results/ carries it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from greenfast.search.cores import usable_cores

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
WHEELS = ("optuna", "numpy", "sqlalchemy", "cuda-core", "nvidia-cuda-nvrtc")


def environment() -> dict[str, Any]:
    """Machine, versions and commit; no host names, no paths."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": _first_line("git", "rev-parse", "--short", "HEAD"),
        "processor": _processor(),
        "cores": usable_cores(),
        "load_1m": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "compiler": _first_line(os.environ.get("GREENFAST_CXX", "g++"), "--version"),
        **{name: importlib.metadata.version(name) for name in WHEELS},
    }


def publish(name: str, rows: list[dict[str, Any]]) -> None:
    """Print the result as JSON; with --save also write bench/results/<name>.json."""
    text = json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n"
    print(text, end="")
    if "--save" in sys.argv:
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{name}.json").write_text(text)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _first_line(*command: str) -> str:
    try:
        found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.splitlines()[0] if found.stdout else "unknown"
