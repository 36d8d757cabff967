"""The tuned kernels that ship with greenfast, by operation and GPU model."""

from __future__ import annotations

import json
import zipfile
from functools import cache
from pathlib import Path

from greenfast.runtime.archive import MANIFEST, read_archive
from greenfast.runtime.kernel_set import KernelSet
from greenfast.runtime.read_bundle import kernel_set

FOLDER = Path(__file__).parent / "sets"


def shipped(operation: str) -> tuple[KernelSet, ...]:
    """The shipped sets of an operation; each names the GPU models that it was measured on."""
    return tuple(map(_kernels, _files(operation)))


def set_for(operation: str, gpu: str) -> KernelSet | str:
    """The set of a GPU model, or the reason why there is none. Other models' are not read."""
    models = {_model(path): path for path in _files(operation)}
    if gpu in models:
        return _kernels(models[gpu])
    listed = " and ".join(models)
    return f"no tuned set for {gpu} is shipped" + (f", only for {listed}" if models else "")


@cache
def _files(operation: str) -> tuple[Path, ...]:
    return tuple(sorted(FOLDER.glob(f"{operation}-*.zip")))


@cache
def _model(path: Path) -> str:
    """The GPU model of a set, which takes a hundredth of the time to read all of it."""
    with zipfile.ZipFile(path) as bundle:
        return str(json.loads(bundle.read(MANIFEST))["device"]["name"])


@cache
def _kernels(path: Path) -> KernelSet:
    return kernel_set(read_archive(path), path.stem)
