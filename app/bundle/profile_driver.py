"""Launch one workload of an unpacked bundle a few times, under one of NVIDIA's tools.

    python profile_driver.py FOLDER PASSES WORKLOAD

It is run_cupy.py of the bundle with line numbers in the cubin, and without checks, graphs and
batches. Every array is an allocation of its own: in CuPy's pool an access beyond the end of one
array would be inside another.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def main(folder: Path, passes: int, name: str) -> None:
    sys.path.insert(0, str(folder))
    run_cupy, reference = importlib.import_module("run_cupy"), importlib.import_module("reference")
    cupy = run_cupy.cupy
    cupy.cuda.set_allocator(None)
    launch = json.loads((folder / "launch.json").read_text("utf-8"))
    workload = next(workload for workload in launch["workloads"] if workload["name"] == name)
    module = run_cupy.compiled(launch, "-lineinfo")
    inputs = reference.make_inputs(
        workload["dims"], workload["options"], "normal", 1, workload["tiles"]
    )
    arguments = run_cupy.device_arguments(workload, inputs)
    for _ in range(passes):
        run_cupy.launch(module, workload, arguments)
    cupy.cuda.Device().synchronize()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
