"""Floors beside a winner, and where its time goes: kernels of the same parallelism, counters of Nsight Compute.

    python bench/gpu/attention_floors.py REQUEST.json REPLY.json      (the child; CuPy)

Floors: an empty node of a graph with the winner's grid, block and shared memory; a kernel that only loads what each block
has to read (its tile of q, and every k and v that its rows see) by asynchronous 16-byte copies and writes o. A floor is a fact about
that kernel on that run, hot; it is no bound that physics sets.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

SAMPLES = 20
CHILD_DEADLINE_S = 60.0
KERNELS = r"""
extern "C" __global__ void empty() {}

// Items are (head, tile of rows, split of its keys); a block takes every gridDim.x-th one. Copies go into shared memory, as many at
// once as the hardware takes: nobody reads them, so they may lie over each other.
extern "C" __global__ void load_only(const uint4* q, const uint4* k, const uint4* v, uint4* o, int heads, int rows,
                                     int pieces, int tile, int splits, int causal, int slots)
{
    extern __shared__ uint4 landing[];
    const int tiles = (rows + tile - 1) / tile;
    auto copy = [&](const uint4* from, int slot) {
        const unsigned to = (unsigned)__cvta_generic_to_shared(landing + slot % slots);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from));
    };
    for (int item = blockIdx.x; item < heads * tiles * splits; item += gridDim.x) {
        const int split = item % splits, first = item / splits % tiles * tile, last = min(first + tile, rows);
        const long long head = (long long)(item / splits / tiles) * rows * pieces;
        const int keys = causal ? last : rows;
        const int begin = keys * split / splits * pieces, end = keys * (split + 1) / splits * pieces;
        for (int i = first * pieces + threadIdx.x; i < last * pieces; i += blockDim.x)
            copy(q + head + i, i);
        #pragma unroll 4
        for (int i = begin + threadIdx.x; i < end; i += blockDim.x) {
            copy(k + head + i, i);
            copy(v + head + i, i);
        }
        asm volatile("cp.async.wait_all;");
        __syncthreads();
        if (split == 0)
            for (int i = first * pieces + threadIdx.x; i < last * pieces; i += blockDim.x)
                o[head + i] = landing[i % slots];
    }
}
"""


def floors(kernel, candidate, workload) -> dict[str, Any]:
    """Microseconds of both floors with all samples; {"error": ...} when no child can say."""
    with tempfile.TemporaryDirectory(prefix="greenfast-floors-") as name:
        request, reply = Path(name) / "request.json", Path(name) / "reply.json"
        request.write_text(json.dumps(shape_of(kernel, candidate, workload)))
        try:
            subprocess.run(
                [sys.executable, __file__, str(request), str(reply)],
                check=True,
                timeout=CHILD_DEADLINE_S,
                capture_output=True,
                text=True,
            )
        except (subprocess.SubprocessError, OSError) as error:
            return {
                "error": f"{type(error).__name__}: {str(getattr(error, 'stderr', '') or error)[-300:]}"
            }
        return json.loads(reply.read_text())


def shape_of(kernel, candidate, workload) -> dict[str, Any]:
    """The parallelism of a candidate on a workload, in numbers; of its launch with the most blocks."""
    from greenfast.app.bundle.download import laid_out_workload
    from greenfast.search.space.space import resolve

    template, dims = kernel.template(candidate.template), dict(workload.dims)
    tile = resolve(template, candidate.parameters, workload.compile_time(kernel)).tiles["tile_q"]
    launches = laid_out_workload(kernel, template, workload, candidate.values()).launches
    launch, heads = max(launches, key=lambda one: math.prod(one.grid)), dims["B"] * dims["H"]
    blocks = math.prod(launch.grid)
    return {
        "heads": heads,
        "rows": dims["S_q"],
        "dim": dims["D"],
        "tile": tile,
        "splits": max(1, blocks // (heads * math.ceil(dims["S_q"] / tile))),
        "causal": dict(workload.options)["mask"] != "none",
        "blocks": blocks,
        "threads": math.prod(launch.block),
        "smem_dynamic_bytes": launch.smem_dynamic_bytes,
        "launches": len(launches),
    }


def measured(shape: dict[str, Any]) -> dict[str, Any]:
    """In the child: both kernels, in graphs, hot."""
    import cupy

    from greenfast.search.targets.cuda.launches import Stopwatch
    from greenfast.search.timing import median

    module = cupy.RawModule(code=KERNELS, options=("--std=c++17",))
    size = shape["heads"] * shape["rows"] * shape["dim"] * 2 // 16
    q, k, v, o = (cupy.random.randint(0, 2**31, 4 * size, cupy.int32) for _ in range(4))
    smem = max(shape["smem_dynamic_bytes"], 16 * shape["threads"])
    arguments = (
        q,
        k,
        v,
        o,
        *(
            cupy.int32(one)
            for one in (
                shape["heads"],
                shape["rows"],
                shape["dim"] * 2 // 16,
                shape["tile"],
                shape["splits"],
                shape["causal"],
                smem // 16,
            )
        ),
    )
    found, stream = {"shape": shape}, cupy.cuda.Stream(non_blocking=True)
    with stream:
        for name, given in (("empty", ()), ("load_only", arguments)):
            function = module.get_function(name)
            function.max_dynamic_shared_size_bytes = smem
            call = SimpleNamespace(
                launch=lambda on: function(
                    (shape["blocks"],), (shape["threads"],), given, shared_mem=smem, stream=on
                )
            )
            watch = Stopwatch([call], stream, 20.0)
            for _ in range(SAMPLES // 2):  # clocks and caches settle
                watch()
            samples = [round(watch(), 4) for _ in range(SAMPLES)]
            found |= {f"{name}_us": median(samples), f"{name}_samples": samples}
    return found


def profiled(context, candidate, workload) -> list[dict[str, Any]] | dict[str, str]:
    """Nsight Compute's counters of each launch; {"error": ...} where it cannot say."""
    from greenfast.app.bundle import profile_driver
    from greenfast.app.bundle.download import STATIC_FILES, launch_description
    from greenfast.search.diagnose.profile import ncu_command, parse_ncu, require_tool, run_tool
    from greenfast.search.errors import GreenfastError

    source = context.render(candidate)
    row = SimpleNamespace(target=context.target.name, workloads=(workload.name,))
    trial = SimpleNamespace(
        template=candidate.template, parameters=candidate.values(), source_digest=source.digest
    )
    launch = launch_description(context.kernel, row, trial)
    with tempfile.TemporaryDirectory(prefix="greenfast-profile-") as name:
        folder = Path(name)
        for file, text in (
            ("kernel.cu", source.text),
            ("launch.json", json.dumps(launch)),
            ("reference.py", context.kernel.reference_text),
            ("run_cupy.py", (STATIC_FILES / "run_cupy.py.txt").read_text("utf-8")),
        ):
            (folder / file).write_text(text)
        log, entries = (
            folder / "ncu.log",
            [one["entry"] for one in launch["workloads"][0]["launches"]],
        )
        try:
            require_tool("ncu")
            command = ncu_command(
                sys.executable, Path(profile_driver.__file__), folder, log, entries, workload.name
            )
            last = run_tool(command, context.target)
            return [
                asdict(one)
                for one in parse_ncu(log.read_text("utf-8", "replace") if log.is_file() else last)
            ]
        except GreenfastError as error:
            return {"error": str(error)}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(measured(json.loads(Path(sys.argv[1]).read_text()))))
