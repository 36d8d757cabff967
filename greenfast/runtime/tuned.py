"""The tuned kernels that ship with greenfast, by operation and GPU model."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from greenfast.runtime.archive import read_archive
from greenfast.runtime.kernel_set import KernelSet
from greenfast.runtime.read_bundle import kernel_set

FOLDER = Path(__file__).parent / "sets"


@cache
def shipped(operation: str) -> tuple[KernelSet, ...]:
    """The shipped sets of an operation; each names the GPU models that it was measured on."""
    sets = []
    for path in sorted(FOLDER.glob(f"{operation}-*.zip")):
        sets.append(kernel_set(read_archive(path), path.stem))
    return tuple(sets)


def set_for(operation: str, gpu: str) -> KernelSet | str:
    """The set of a GPU model, or the reason why there is none."""
    sets = shipped(operation)
    for kernels in sets:
        if kernels.device == gpu:
            return kernels
    models = " and ".join(dict.fromkeys(kernels.device for kernels in sets))
    return f"no tuned set for {gpu} is shipped" + (f", only for {models}" if models else "")
