"""The child of bench/correctness/independent_check.py on a GPU: runs candidates' cubins on its own inputs, in its own layout (CuPy).

    python -m bench.correctness.independent.runner JOBS.jsonl

Says on stdout, a line each, which candidate it begins and what came of it. An error of the device ends it: what was begun and
not ended broke the context, and the parent starts another child behind it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import cupy
import numpy as np

from bench.correctness.independent import CHECKERS


def main(jobs: Path) -> None:
    for line in jobs.read_text().splitlines():
        job = json.loads(line)
        print(json.dumps({"begin": job["id"]}), flush=True)
        why, ratio = judge(job)
        print(
            json.dumps({"id": job["id"], "why": why, "ratio": ratio if ratio < 1e300 else None}),
            flush=True,
        )


def judge(job) -> tuple[str, float]:
    checker = CHECKERS[job["kernel"]]
    module, largest = cupy.RawModule(path=job["cubin"]), 0.0
    for case in job["cases"]:
        before = checker.images(case)
        on_device = {name: cupy.asarray(image) for name, image in before.items()}
        run(module, case, checker.arguments(case), on_device)
        why, ratio = checker.judged(
            case, before, {name: cupy.asnumpy(image) for name, image in on_device.items()}
        )
        if why:
            return f"{said(case)}: {why}", ratio
        largest = max(largest, ratio)
    return "", largest


def run(module, case, arguments, on_device) -> None:
    scratch = [
        cupy.full(max(size, 1), 0 if zero else 0xFF, cupy.uint8)
        for size, zero in case["workspaces"]
    ]

    def argument(type_, value):
        if type_ == "tensor":
            image = on_device[value]
            return np.uint64(image.data.ptr + image.itemsize * case["tensors"][value]["offset"])
        return np.dtype(type_).type(value)

    given = (*(argument(*one) for one in arguments), *(np.uint64(one.data.ptr) for one in scratch))
    for launch in case["launches"]:
        function = module.get_function(launch["entry"])
        if launch["smem"]:
            function.max_dynamic_shared_size_bytes = launch["smem"]
        function(tuple(launch["grid"]), tuple(launch["block"]), given, shared_mem=launch["smem"])
    cupy.cuda.get_current_stream().synchronize()


def said(case) -> str:
    return " ".join(
        f"{name}={value}"
        for name, value in case.items()
        if name not in ("seed", "tensors", "launches", "workspaces")
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
