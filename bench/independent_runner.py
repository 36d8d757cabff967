"""The child of bench/independent_check.py on a GPU: runs candidates' cubins on its own inputs, in its own layout (CuPy).

    python bench/independent_runner.py JOBS.jsonl

Says on stdout, a line each, which candidate it begins and what came of it. An error of the device ends it: what was begun and
not ended broke the context, and the parent starts another child behind it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import cupy
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.independent_reference import images, judged


def main(jobs: Path) -> None:
    for line in jobs.read_text().splitlines():
        job = json.loads(line)
        print(json.dumps({"begin": job["id"]}), flush=True)
        why, ratio = judge(job)
        print(json.dumps({"id": job["id"], "why": why, "ratio": ratio if ratio < 1e300 else None}), flush=True)


def judge(job) -> tuple[str, float]:
    module, largest = cupy.RawModule(path=job["cubin"]), 0.0
    for case in job["cases"]:
        before = images(case, np)
        on_device = {name: cupy.asarray(image) for name, image in before.items()}
        run(module, case, on_device)
        why, ratio = judged(case, before, {name: cupy.asnumpy(image) for name, image in on_device.items()}, np)
        if why:
            return f"{shape(case)}: {why}", ratio
        largest = max(largest, ratio)
    return "", largest


def run(module, case, on_device) -> None:
    scratch = [cupy.full(max(size, 1), 0 if zero else 0xFF, cupy.uint8) for size, zero in case["workspaces"]]
    pointers = [on_device[name].data.ptr + 2 * case["tensors"][name]["offset"] for name in "qkvo"] + [on_device["lse"].data.ptr]
    strides = [stride for name in "qkvo" for stride in case["tensors"][name]["strides"][:3]]
    arguments = (*(np.uint64(one) for one in pointers), *(np.int32(case[name]) for name in ("H", "H_kv", "S_q", "S_kv")),
                 np.float32(case["D"] ** -0.5), *(np.int64(one) for one in strides),
                 *(np.uint64(one.data.ptr) for one in scratch))
    for one in case["launches"]:
        function = module.get_function(one["entry"])
        if one["smem"]:
            function.max_dynamic_shared_size_bytes = one["smem"]
        function(tuple(one["grid"]), tuple(one["block"]), arguments, shared_mem=one["smem"])
    cupy.cuda.get_current_stream().synchronize()


def shape(case) -> str:
    return " ".join(f"{name}={case[name]}" for name in ("B", "H", "H_kv", "S_q", "S_kv", "kind"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
