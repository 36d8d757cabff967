"""Floors beside a winner, and where its time goes: bare kernels, counters of Nsight Compute.

    python -m bench.gpu.attention_floors REQUEST.json REPLY.json

This is the child that other scripts start on a GPU; it needs CuPy. The floors are an empty graph
node with the winner's grid, block and shared memory, and a kernel that only loads what each block
has to read (its tile of q, and every k and v that its rows see) by asynchronous 16-byte copies and
writes o. A floor is a fact about that kernel in that run, with hot caches; it is no physical bound.
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

from bench.command_line import require_gpu, script_parser
from bench.results import ROOT, Row, read_json, write_json
from greenfast.app.bundle import profile_driver
from greenfast.app.bundle.download import STATIC_FILES, laid_out_workload, launch_description
from greenfast.search.devices.facts import Device
from greenfast.search.diagnose.profile import ncu_command, parse_ncu, require_tool, run_tool
from greenfast.search.errors import GreenfastError
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Workload
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.space.candidate import Candidate
from greenfast.search.space.space import resolve
from greenfast.search.timing import median

SAMPLES = 20
CHILD_DEADLINE_S = 60.0
KERNELS = r"""
extern "C" __global__ void empty() {}

// Items are (head, tile of rows, split of its keys); a block takes every gridDim.x-th one. Copies
// go into shared memory, as many at once as the hardware takes. Nothing reads them, so that they
// may overlap.
extern "C" __global__ void load_only(const uint4* q, const uint4* k, const uint4* v, uint4* o,
                                     int heads, int rows, int pieces, int tile, int splits,
                                     int causal, int slots)
{
    extern __shared__ uint4 landing[];
    const int tiles = (rows + tile - 1) / tile;
    auto copy = [&](const uint4* from, int slot) {
        const unsigned to = (unsigned)__cvta_generic_to_shared(landing + slot % slots);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from));
    };
    for (int item = blockIdx.x; item < heads * tiles * splits; item += gridDim.x) {
        const int split = item % splits;
        const int first = item / splits % tiles * tile, last = min(first + tile, rows);
        const long long head = (long long)(item / splits / tiles) * rows * pieces;
        const int keys = causal ? last : rows;
        const int begin = keys * split / splits * pieces;
        const int end = keys * (split + 1) / splits * pieces;
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


def floors(kernel: KernelSpec, candidate: Candidate, workload: Workload, device: Device) -> Row:
    """Microseconds of both floors with all samples; {"error": ...} if the child fails."""
    with tempfile.TemporaryDirectory(prefix="greenfast-floors-") as name:
        request, reply = Path(name) / "request.json", Path(name) / "reply.json"
        write_json(request, shape_of(kernel, candidate, workload, device))
        try:
            subprocess.run(
                [sys.executable, "-m", "bench.gpu.attention_floors", str(request), str(reply)],
                check=True,
                timeout=CHILD_DEADLINE_S,
                capture_output=True,
                text=True,
                cwd=ROOT,
            )
        except (subprocess.SubprocessError, OSError) as error:
            detail = str(getattr(error, "stderr", "") or error)[-300:]
            return {"error": f"{type(error).__name__}: {detail}"}
        return read_json(reply)


def shape_of(kernel: KernelSpec, candidate: Candidate, workload: Workload, device: Device) -> Row:
    """A candidate's parallelism on a workload, taken from its launch with the most blocks."""
    template, dims = kernel.template(candidate.template), dict(workload.dims)
    point = resolve(template, candidate.parameters, workload.compile_time(kernel), device)
    tile = point.tiles["tile_q"]
    launches = laid_out_workload(kernel, template, workload, candidate.values(), device).launches
    largest = max(launches, key=lambda launch: math.prod(launch.grid))
    blocks, heads = math.prod(largest.grid), dims["B"] * dims["H"]
    return {
        "heads": heads,
        "rows": dims["S_q"],
        "dim": dims["D"],
        "tile": tile,
        "splits": max(1, blocks // (heads * math.ceil(dims["S_q"] / tile))),
        "causal": dict(workload.options)["mask"] != "none",
        "blocks": blocks,
        "threads": math.prod(largest.block),
        "smem_dynamic_bytes": largest.smem_dynamic_bytes,
        "launches": len(launches),
    }


def measured(shape: Row) -> Row:
    """In the child: the times of both kernels in graphs, with hot caches."""
    import cupy

    module = cupy.RawModule(code=KERNELS, options=("--std=c++17",))
    pieces = shape["dim"] * 2 // 16  # of 16 bytes in a row
    size = shape["heads"] * shape["rows"] * pieces
    tensors = (cupy.random.randint(0, 2**31, 4 * size, cupy.int32) for _ in range(4))
    smem = max(shape["smem_dynamic_bytes"], 16 * shape["threads"])
    scalars = (
        shape["heads"],
        shape["rows"],
        pieces,
        shape["tile"],
        shape["splits"],
        shape["causal"],
        smem // 16,
    )
    arguments = (*tensors, *map(cupy.int32, scalars))
    times: Row = {"shape": shape}
    for name, given in (("empty", ()), ("load_only", arguments)):
        samples = _samples(cupy, module.get_function(name), shape, given, smem)
        times |= {f"{name}_us": median(samples), f"{name}_samples": samples}
    return times


def _samples(
    cupy: Any, function: Any, shape: Row, arguments: tuple[Any, ...], smem: int
) -> list[float]:
    """Microseconds of a launch in the winner's parallelism, with settled clocks and caches."""
    from greenfast.search.targets.cuda.launches import Stopwatch

    function.max_dynamic_shared_size_bytes = smem
    grid, block = (shape["blocks"],), (shape["threads"],)

    def launch(stream: Any) -> None:
        function(grid, block, arguments, shared_mem=smem, stream=stream)

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        watch = Stopwatch([SimpleNamespace(launch=launch)], stream, 20.0)
        for _ in range(SAMPLES // 2):
            watch()
        return [round(watch(), 4) for _ in range(SAMPLES)]


def profiled(
    context: EvaluationContext, candidate: Candidate, workload: Workload
) -> list[Row] | Row:
    """Nsight Compute's counters of each launch; {"error": ...} if it cannot be run."""
    source = context.render(candidate)
    row = SimpleNamespace(target=context.target.name, workloads=(workload.name,))
    trial = SimpleNamespace(
        template=candidate.template,
        parameters=candidate.values(),
        source_digest=source.digest,
        environment={
            **dict(context.target.identity()),
            "multiprocessors": str(context.target.device.multiprocessors),
        },
    )
    launch = launch_description(context.kernel, row, trial)
    files = {
        "kernel.cu": source.text,
        "launch.json": json.dumps(launch),
        "reference.py": context.kernel.reference_text,
        "run_cupy.py": (STATIC_FILES / "run_cupy.py.txt").read_text("utf-8"),
    }
    entries = [item["entry"] for item in launch["workloads"][0]["launches"]]
    with tempfile.TemporaryDirectory(prefix="greenfast-profile-") as name:
        folder = Path(name)
        for file, text in files.items():
            (folder / file).write_text(text)
        log = folder / "ncu.log"
        try:
            require_tool("ncu")
            driver = Path(profile_driver.__file__)
            command = ncu_command(sys.executable, driver, folder, log, entries, workload.name)
            output = run_tool(command, context.target)
            text = log.read_text("utf-8", "replace") if log.is_file() else output
            return [asdict(counters) for counters in parse_ncu(text)]
        except GreenfastError as error:
            return {"error": str(error)}


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("request", type=Path, metavar="REQUEST.json")
    parser.add_argument("reply", type=Path, metavar="REPLY.json")
    options = parser.parse_args()
    require_gpu()
    write_json(options.reply, measured(read_json(options.request)))


if __name__ == "__main__":
    main()
