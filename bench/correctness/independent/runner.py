"""The child of the independent check on a GPU: runs cubins on its own inputs, in its own layout.

    python -m bench.correctness.independent.runner JOBS.jsonl

Needs CuPy. Prints a line when it begins a candidate and a line with the verdict. An error of the
device ends it: the candidate that was begun and not judged broke the context, and the parent starts
another child for the rest.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from bench.correctness.independent import CHECKERS
from bench.correctness.independent.memory import Case


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.correctness.independent.runner", description=__doc__
    )
    parser.add_argument("jobs", type=Path, metavar="JOBS.jsonl")
    jobs = parser.parse_args().jobs
    try:
        import cupy
    except ImportError as error:
        raise SystemExit(f"This child needs a GPU and CuPy: {error}") from error
    for line in jobs.read_text().splitlines():
        job = json.loads(line)
        print(json.dumps({"begin": job["id"]}), flush=True)
        why, ratio = judge(cupy, job)
        print(
            json.dumps({"id": job["id"], "why": why, "ratio": ratio if ratio < 1e300 else None}),
            flush=True,
        )


def judge(cupy: Any, job: dict[str, Any]) -> tuple[str, float]:
    """Why the candidate is wrong, empty if it is correct; the largest ratio of errors."""
    checker = CHECKERS[job["kernel"]]
    module, largest = cupy.RawModule(path=job["cubin"]), 0.0
    for case in job["cases"]:
        before = checker.images(case)
        on_device = {name: cupy.asarray(image) for name, image in before.items()}
        run(cupy, module, case, checker.arguments(case), on_device)
        why, ratio = checker.judged(
            case, before, {name: cupy.asnumpy(image) for name, image in on_device.items()}
        )
        if why:
            return f"{description(case)}: {why}", ratio
        largest = max(largest, ratio)
    return "", largest


def run(
    cupy: Any, module: Any, case: Case, arguments: list[tuple[str, Any]], on_device: dict[str, Any]
) -> None:
    """Launch the kernels of a case and wait for them."""
    scratch = [
        cupy.full(max(size, 1), 0 if zero else 0xFF, cupy.uint8)
        for size, zero in case["workspaces"]
    ]

    def argument(type_: str, value: Any) -> Any:
        if type_ == "tensor":
            image = on_device[value]
            return np.uint64(image.data.ptr + image.itemsize * case["tensors"][value]["offset"])
        return np.dtype(type_).type(value)

    pointers = (np.uint64(array.data.ptr) for array in scratch)
    given = (
        *(argument(type_, value) for type_, value in (*arguments, *case["scalars"])),
        *pointers,
    )
    for launch in case["launches"]:
        function = module.get_function(launch["entry"])
        if launch["smem"]:
            function.max_dynamic_shared_size_bytes = launch["smem"]
        function(tuple(launch["grid"]), tuple(launch["block"]), given, shared_mem=launch["smem"])
    cupy.cuda.get_current_stream().synchronize()


def description(case: Case) -> str:
    return " ".join(
        f"{name}={value}"
        for name, value in case.items()
        if name not in ("seed", "tensors", "launches", "scalars", "workspaces")
    )


if __name__ == "__main__":
    main()
