"""The common parts of the scripts' command lines."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.results import ROOT
from greenfast.search.targets.cuda import gpu_count


def script_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the script's docstring."""
    specification = sys.modules["__main__"].__spec__
    return argparse.ArgumentParser(
        prog=f"python -m {specification.name.removesuffix('.__main__')}" if specification else None,
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_save(parser: argparse.ArgumentParser) -> None:
    """The flag of scripts that print a result and store it on demand."""
    parser.add_argument("--save", action="store_true", help="store the result in bench/results/")


def require_gpu() -> None:
    """SystemExit with the reason where nothing can be measured."""
    if not gpu_count():
        raise SystemExit("This measurement needs an NVIDIA GPU, and none is visible here.")
    if importlib.util.find_spec("cupy") is None:
        raise SystemExit("This measurement needs CuPy: pip install 'greenfast[cuda13]'")


def run_greenfast(
    *arguments: str, data: str | Path | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a greenfast command in a process of its own, with the data folder `data`.

    Its messages go to stderr as they come. SystemExit if it fails, unless `check` is off.
    """
    environment = {**os.environ, **({"GREENFAST_DATA": str(data)} if data else {})}
    process = subprocess.run(
        [sys.executable, "-m", "greenfast", *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=None if check else subprocess.PIPE,
        text=True,
        check=False,
    )
    if check and (process.returncode or not process.stdout):
        command = " ".join(("greenfast", *arguments))
        raise SystemExit(f"`{command}` ended with exit code {process.returncode}")
    return process


def greenfast_json(*arguments: str, data: str | Path | None = None) -> Any:
    """The value that a greenfast command prints with --json."""
    return json.loads(run_greenfast(*arguments, "--json", data=data).stdout)
