"""References computed in worker processes, where there are cores to spare.

In the process of a search they would hold Python's global lock for half of the time that
everything else needs (search/compute_turns.py).
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from greenfast.search.children import ChildDied, Children, ChildTimeout, Limits
from greenfast.search.cores import usable_memory_bytes
from greenfast.search.errors import Fault
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.oracle.cases import Case
from greenfast.search.scratch import scratch_of

DEADLINE_S = 60.0  # for all cases of a candidate
# A reference is trusted, but may have a mistake: a list that only grows. The arrays of a large case
# take some of it, too.
MEMORY_BYTES = max(8, usable_memory_bytes() // 2**31) * 2**30
OUT_OF_MEMORY = "MemoryError"  # the end of such a case's error
CORES_A_CHILD = 8  # one child keeps up with the compilers that eight cores run

# Inputs by name, and for each output the fields of Expected.
Arrays = tuple[dict[str, np.ndarray], dict[str, dict[str, np.ndarray | None]]]
# Argument, field of Expected ("" for an input), dtype, and shape (None: no array).
Part = tuple[str, str, str, Sequence[int] | None]


def children_for(cores: int) -> int:
    """The number of children for a machine with this many cores."""
    return cores // CORES_A_CHILD


def described_kernel(kernel: KernelSpec) -> dict[str, Any]:
    """JSON data from which a child loads reference.py (`reference.described_module`)."""
    return {
        "name": kernel.folder.name,
        "text": kernel.reference_text,
        "uses": kernel.reference_uses,
    }


class Work(StrEnum):
    """The work of a child on a case."""

    ALL = "all"  # its inputs and outputs
    MOVED = "moved"  # its outputs for inputs that are changed by one rounding
    INPUTS = "inputs"  # its inputs alone


def described_case(case: Case) -> dict[str, Any]:
    """JSON data from which a child computes the case; its inputs follow from the seed."""
    return {
        "label": case.label,
        "dims": dict(case.dims),
        "options": dict(case.options),
        "inputs": case.inputs,
        "seed": case.seed,
        "tiles": dict(case.tiles),
    }


class ReferenceChildren:
    """`count` children, each started when it is first needed. They end with this process.

    `patience_s` is that of `Children`, `threads` how many a product of matrices may take.
    """

    def __init__(self, count: int, *, patience_s: float = 0.0, threads: int = 1) -> None:
        self.pool = Children(
            count,
            "greenfast.search.oracle.reference_child",
            Limits(memory_bytes=MEMORY_BYTES, file_bytes=MEMORY_BYTES),
            patience_s=patience_s,
            environment={"OPENBLAS_NUM_THREADS": str(threads)},
        )
        self._folder: Path | None = None
        self._lock = threading.Lock()

    def computed(self, kernel: KernelSpec, cases: Sequence[Case]) -> list[Arrays | None]:
        """The arrays of each case; None if this process must compute the case itself.

        A child that fails, dies or exceeds its deadline gives None and raises nothing.
        """
        try:
            return [arrays for arrays, _ in self.asked(kernel, cases, DEADLINE_S)]
        except (ChildDied, ChildTimeout, Fault, OSError):
            return [None] * len(cases)

    def asked(
        self,
        kernel: KernelSpec,
        cases: Sequence[Case],
        deadline_s: float,
        work: Work = Work.ALL,
    ) -> list[tuple[Arrays | None, str]]:
        """For each case its arrays, or None and the error.

        Raises as `Child.call` does, and Fault `disk_full`.
        """
        path = self._file()
        request = {
            **described_kernel(kernel),
            "cases": [described_case(case) for case in cases],
            "file": str(path),
            "deadline_s": deadline_s,
            "work": work,
        }
        try:
            reply = self.pool.call(request, deadline_s)
            if "unwritten" in reply:
                place, why = path.parent.parent, reply["unwritten"]
                raise Fault(
                    f"references cannot be written below {place}: {why}",
                    code="disk_full",
                    mend="free some space there, or set TMPDIR to another folder",
                )
            with path.open("rb") as file:
                contents = [
                    None if parts is None else _read(file, parts) for parts in reply["arrays"]
                ]
            return list(zip(contents, reply["errors"], strict=True))
        finally:
            path.unlink(missing_ok=True)

    def _file(self) -> Path:
        with self._lock:
            if self._folder is None:
                self._folder, _ = scratch_of(self, "references")
        handle, name = tempfile.mkstemp(dir=self._folder)
        with open(handle, "wb"):
            return Path(name)


def _read(file: BinaryIO, parts: Sequence[Part]) -> Arrays:
    inputs: dict[str, np.ndarray] = {}
    outputs: dict[str, dict[str, np.ndarray | None]] = {}
    for name, field, dtype, shape in parts:
        array = None if shape is None else _read_array(file, dtype, shape)
        if field:
            outputs.setdefault(name, {})[field] = array
        elif array is not None:
            inputs[name] = array
    return inputs, outputs


def _read_array(file: BinaryIO, dtype: str, shape: Sequence[int]) -> np.ndarray:
    kind: np.dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    size_bytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    return np.fromfile(file, np.uint8, size_bytes).view(kind).reshape(shape)
