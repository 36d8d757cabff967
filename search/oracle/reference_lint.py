"""A reference called at small sizes in a confined child, and judged: for authors, before a search.

The child opens no file and starts no process, so a reference that does is found here and not in a
search. It has limits of time and memory.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from greenfast.search.children import (
    ChildDied,
    Children,
    ChildTimeout,
    Limits,
    serve_requests,
)
from greenfast.search.confinement import confine
from greenfast.search.cores import usable_cores
from greenfast.search.errors import SpecError
from greenfast.search.kernels.kernel_file import load_kernel
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.drawn import drawn_cases
from greenfast.search.oracle.guarded_reference import RUNS_A_KERNEL
from greenfast.search.oracle.judged_reference import judged_reference
from greenfast.search.oracle.reference import case_data, kernel_module

DEADLINE_S = 60.0
MEMORY_BYTES = 8 * 2**30
LOG_BYTES = 64 * 1024
MOST_FAULTS = 10
SECRET = 0  # for drawn sizes; each search has another secret


def reference_children(calls: int) -> Children:
    """One child for so many calls about one kernel; another one replaces it when it has ended.

    The deadline is this process's to keep. If it is killed first, the limit ends an endless loop.
    """
    cpu_s = int(DEADLINE_S) * usable_cores() * calls
    limits = Limits(cpu_s=cpu_s, memory_bytes=MEMORY_BYTES, file_bytes=LOG_BYTES)
    return Children(1, __spec__.name, limits)


def reference_faults(
    kernel: KernelSpec, cases: Sequence[Case], file: str, children: Children
) -> list[tuple[str, str]]:
    """(code, sentence) of each fault of the kernel's reference on these cases."""
    if not cases:
        return []
    if RUNS_A_KERNEL in kernel.reference_text:  # no confined process can compile and run one
        return faults(kernel, cases)
    request = {
        "folder": str(kernel.folder.absolute()),
        "cases": [
            {
                "name": case.name,
                "dims": case.dims,
                "options": case.options,
                "inputs": case.inputs,
                "layout": case.layout,
                "seed": case.seed,
                "tiles": case.tiles,
            }
            for case in cases
        ],
    }
    try:
        return [(code, sentence) for code, sentence in children.call(request, DEADLINE_S)["faults"]]
    except ChildTimeout:
        sentence = (
            f"{file}: the checks' references take more than {DEADLINE_S:g} s together; make the "
            "checks smaller"
        )
        return [("reference_slow", sentence)]
    except ChildDied as died:
        tail = (died.tail.strip().splitlines() or [""])[-1][-200:]  # of a traceback: the error
        status = f" (exit status {died.returncode})" if died.returncode is not None else ""
        ended = f"{file}: the reference ended its process{status}" + (f": {tail}" if tail else "")
        return [("reference_failed", ended)]


def faults_of(request: Mapping[str, Any]) -> dict[str, Any]:
    """In the child: {"faults": [(code, sentence), ...]}."""
    kernel = _loaded(request["folder"])
    _confine_once()
    cases = [
        Case(
            described["name"],
            _items(described["dims"]),
            _items(described["options"]),
            described["inputs"],
            described["layout"],
            described["seed"],
            tuple((name, int(size)) for name, size in described["tiles"]),
        )
        for described in request["cases"]
    ]
    return {"faults": faults(kernel, cases)}


def faults(kernel: KernelSpec, cases: Sequence[Case]) -> list[tuple[str, str]]:
    """(code, sentence) of each fault, found in this process."""
    problems, working = _called(kernel, cases)
    if not problems:
        try:
            problems, _ = _called(kernel, _drawn(kernel, cases))
        except SpecError as error:  # a default that other sizes give no value
            problems.append((error.code, str(error)))
    problems += (
        ("weak_test", f"{kernel.name}/kernel.toml: the checks are weak: {weakness.sentence}")
        for weakness in judged_reference(kernel, working, lambda case: case_data(kernel, case))
    )
    return list(dict.fromkeys(problems))[:MOST_FAULTS]


def _called(kernel: KernelSpec, cases: Sequence[Case]) -> tuple[list[tuple[str, str]], list[Case]]:
    """The faults of calls at these sizes, and the cases without an error."""
    problems: list[tuple[str, str]] = []
    working: list[Case] = []
    told: set[str] = set()
    for case in cases:
        try:
            data = case_data(kernel, case)
        except Exception as error:
            sentence = str(error)
            without_case = sentence.replace(f"case {case.label}: ", "")
            if without_case not in told:  # the first case that shows it is enough
                problems.append((getattr(error, "code", "reference_failed"), sentence))
            told.add(without_case)
            continue
        working.append(case)
        if fault := _unrepeatable(kernel, case, data.inputs):
            problems.append(("reference_not_repeatable", fault))
    return problems, working


def _drawn(kernel: KernelSpec, cases: Sequence[Case]) -> tuple[Case, ...]:
    """Cases of other sizes, as a search draws them."""
    baked = {dim.name for dim in kernel.dims if dim.time == "compile"}
    compiled = tuple(item for item in cases[0].dims if item[0] in baked) + cases[0].options
    return drawn_cases(kernel, compiled, cases, SECRET, cases[0].seed)


def _unrepeatable(kernel: KernelSpec, case: Case, inputs: Mapping[str, Any]) -> str:
    """Why a second call of make_inputs gives other bits; empty when it does not."""
    again = kernel_module(kernel).make_inputs(
        dict(case.dims), dict(case.options), case.inputs, case.seed, dict(case.tiles)
    )
    for name, array in inputs.items():
        if name in again and again[name].tobytes() != array.tobytes():
            return (
                f"{kernel.name}/reference.py: make_inputs gives {name} other bits when it is "
                "called again with the same seed: draw from numpy.random.default_rng(seed)"
            )
    return ""


def _items(pairs: Sequence[Sequence[Any]]) -> Items:
    return tuple((str(name), value) for name, value in pairs)


_confined: list[bool] = []


@cache
def _loaded(folder: str) -> KernelSpec:
    """The confined process cannot read the files again."""
    return load_kernel(Path(folder))


def _confine_once() -> None:
    """Once NumPy and the kernel's files are loaded, the process reads only Python's own files."""
    if not _confined:
        confine(sorted({path for path in sys.path if path and Path(path).is_dir()}))
        _confined.append(True)


if __name__ == "__main__":
    serve_requests(faults_of, int(sys.argv[1]), int(sys.argv[2]))
