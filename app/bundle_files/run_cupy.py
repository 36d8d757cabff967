"""Compile kernel.cu with NVRTC, run every workload on the GPU, check it against reference.py, and time it.

    pip install numpy ml_dtypes cupy-cuda13x
    python run_cupy.py [SEED ...]

Exits 0 when every output of every workload and seed is within its bound.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import cupy
import ml_dtypes
import numpy as np

import reference

HERE = Path(__file__).resolve().parent
DTYPES = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "float32": np.dtype(np.float32),
          "int32": np.dtype(np.int32), "int64": np.dtype(np.int64)}
BATCHES, PASSES = 15, 50


def strided(image: np.ndarray, argument: dict) -> np.ndarray:
    """A tensor's elements inside its bytes, in logical order."""
    dtype = DTYPES[argument["dtype"]]
    steps = [stride * dtype.itemsize for stride in argument["strides"]]
    return np.ndarray(tuple(argument["shape"]), dtype, image.data, strides=steps)


def device_argument(argument: dict, inputs: dict[str, np.ndarray]):
    """What a launch takes: a typed scalar, or device bytes (outputs full of NaN)."""
    if argument["kind"] == "scalar":
        return DTYPES[argument["dtype"]].type(argument["value"])
    image = np.full(argument["bytes"], 0 if argument.get("zero_fill") else 0xFF, np.uint8)
    if argument["kind"] == "input":
        strided(image, argument)[...] = inputs[argument["name"]]
    return cupy.asarray(image)


def launch(module: cupy.RawModule, workload: dict, arguments: list) -> None:
    for one in workload["launches"]:
        function = module.get_function(one["entry"])
        function.max_dynamic_shared_size_bytes = one["smem_dynamic_bytes"]
        function(tuple(one["grid"]), tuple(one["block"]), tuple(arguments), shared_mem=one["smem_dynamic_bytes"])


def time_us(module: cupy.RawModule, workload: dict, arguments: list) -> float:
    """Microseconds of one pass: the median of several batches. Inputs stay in L2 when they fit."""
    times = []
    for _ in range(BATCHES):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        for _ in range(PASSES):
            launch(module, workload, arguments)
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end) * 1000 / PASSES)
    return statistics.median(times)


def check(workload: dict, arguments: list, expected: dict) -> bool:
    """Every element within its bound (written so that NaN fails)."""
    right = True
    for argument, memory in zip(workload["arguments"], arguments):
        if argument["kind"] != "output":
            continue
        got = strided(cupy.asnumpy(memory), argument).astype(np.float64)
        wanted, bound = expected[argument["name"]]["value"], expected[argument["name"]]["bound"]
        error = np.where(got == wanted, 0.0, np.abs(got - wanted))
        within = error <= bound
        right = right and bool(within.all())
        print(f"  {argument['name']:8} largest absolute error {error.max(initial=0.0):.3g}, "
              f"{within.mean():.2%} within the bound")
    return right


def main() -> int:
    seeds = [int(one) for one in sys.argv[1:]] or [1, 2, 3]
    description = json.loads((HERE / "launch.json").read_text())
    module = cupy.RawModule(code=(HERE / "kernel.cu").read_text(), options=("--std=c++17",), backend="nvrtc")
    right = True
    for workload in description["workloads"]:
        for seed in seeds:
            inputs = reference.make_inputs(workload["dims"], workload["options"], "normal", seed, workload["tiles"])
            expected = reference.reference(workload["dims"], workload["options"], inputs)
            arguments = [device_argument(one, inputs) for one in workload["arguments"]]
            launch(module, workload, arguments)
            cupy.cuda.Device().synchronize()
            print(f"{workload['name']}, seed {seed}")
            right = check(workload, arguments, expected) and right
        print(f"{workload['name']}: {time_us(module, workload, arguments):.2f} us")
    print("right" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
