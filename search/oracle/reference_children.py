"""References computed in processes of their own, where there are cores to spare.

In the process of a search they would hold Python's lock for half of the time that all else needs (search/compute_turns.py).
"""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from greenfast.search.children import Child, ChildDied, ChildTimeout, Limits
from greenfast.search.errors import Fault
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.oracle.cases import Case

DEADLINE_S = 60.0  # for the cases of one candidate
MEMORY_BYTES = 8 * 2**30
CORES_A_CHILD = 8  # one computes for as many compilers as eight cores run

Arrays = tuple[
    dict[str, np.ndarray], dict[str, dict[str, np.ndarray | None]]
]  # inputs; outputs -> fields of Expected


def children_for(cores: int) -> int:
    return cores // CORES_A_CHILD


def described_kernel(kernel: KernelSpec) -> dict[str, Any]:
    """What a child needs to load its reference.py: `reference.described_module` takes it."""
    return {
        "name": kernel.folder.name,
        "text": kernel.reference_text,
        "uses": kernel.reference_uses,
    }


def described_case(case: Case) -> dict[str, Any]:
    """What a child needs to compute it by itself; inputs follow from the seed."""
    return {
        "dims": dict(case.dims),
        "options": dict(case.options),
        "inputs": case.inputs,
        "seed": case.seed,
        "tiles": dict(case.tiles),
    }


class ReferenceChildren:
    """`count` children, each started when it is first needed. They end when this process does."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._idle: queue.LifoQueue[Child | None] = queue.LifoQueue()
        self._folder: Path | None = None
        self._lock = threading.Lock()
        for _ in range(count):
            self._idle.put(None)

    def computed(self, kernel: KernelSpec, cases: Sequence[Case]) -> list[Arrays | None]:
        """What reference.py gives for each case; None where it has to be asked here, also because no child could."""
        path = self._file()
        request = {
            **described_kernel(kernel),
            "cases": [described_case(case) for case in cases],
            "file": str(path),
        }
        try:
            found = self._call(request)["found"]
            with path.open("rb") as file:
                return [None if one is None else _read(file, one) for one in found]
        except (ChildDied, ChildTimeout, Fault, OSError):
            return [None] * len(cases)
        finally:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """End the children; those at work end with their work."""
        for _ in range(self.count):
            try:
                child = self._idle.get_nowait()
            except queue.Empty:
                return
            if child is not None:
                child.close()
            self._idle.put(None)

    def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        child = self._idle.get()
        try:
            if child is None or not child.alive:
                child = Child(
                    "greenfast.search.oracle.reference_child", Limits(memory_bytes=MEMORY_BYTES)
                )
            return child.call(request, DEADLINE_S)
        except (ChildDied, ChildTimeout, Fault):
            child = None
            raise
        finally:
            self._idle.put(child)

    def _file(self) -> Path:
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="greenfast-references-"))
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        handle, name = tempfile.mkstemp(dir=self._folder)
        with open(handle, "wb"):
            return Path(name)


def _read(file, parts: Sequence[tuple]) -> Arrays:
    inputs, outputs = {}, {}
    for name, field, dtype, shape in parts:
        array = None
        if shape is not None:
            kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
            array = (
                np.fromfile(file, np.uint8, int(np.prod(shape, dtype=np.int64)) * kind.itemsize)
                .view(kind)
                .reshape(shape)
            )
        if field:
            outputs.setdefault(name, {})[field] = array
        else:
            inputs[name] = array
    return inputs, outputs
