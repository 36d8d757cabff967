"""The fastest points of bench.gpu.gemm_sweep against cuBLASLt, confirmed in fresh processes.

    python -m bench.gpu.gemm_confirm OUT.json [--kernel gemm_fp8] [--sweep FILE ...]
                                     [--finalists 4] [--processes 3] [--only TEXT]

Several sweeps, also of another GPU, are joined: their different finalists race.

A sweep's best point was picked from hundreds by the times that are shown, so it looks faster than
it is. Here a first process picks among the finalists of each row. Fresh processes then time only
that pick, in randomised ABBA blocks with torch's product (cuBLASLt), L2 hot. Each process places
its data anew, compares the output with the exact product, and gives an interval; the row's decision
is that over processes, as for every published time (greenfast.search.timing.across_processes).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.command_line import require_gpu, script_parser
from bench.environment import basic_environment
from bench.gpu.gemm_operands import Operands, Tensors, operands
from bench.gpu.gemm_sweep import DEADLINE_S, described
from bench.results import Row, read_json, read_result, write_json
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.workloads import Items
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import resolve
from greenfast.search.timing import (
    Interval,
    across_processes,
    block_log_ratios,
    decide,
    median,
    race,
)
from greenfast.search.toolchain.nvrtc import Cubin, Toolchain

PICK_BLOCKS, BLOCKS = 10, 40
WARM_UP_S = 0.2
PLACES = 8192  # of 256 bytes
STEP = 64  # elements of K in a stage of gemm/wgmma
CHILD_DEADLINE_S = 240


def main() -> int:
    options = _options()
    if options.child:
        return child(json.loads(options.out.read_text()))
    require_gpu()
    given = operands(options.kernel)
    results = [read_json(path) for path in options.sweep or ()]
    results = results or [read_result(f"h200/{options.kernel}_sweep")]
    sweeps = [
        [row for row in result["rows"] if options.only in row["workload"]] for result in results
    ]
    with tempfile.TemporaryDirectory(prefix="greenfast-confirm-") as name:
        folder = Path(name)
        points = prepared(sweeps, options.finalists, folder, given)
        began = time.monotonic()
        trials = in_process(points, PICK_BLOCKS, 0, folder, given)
        picks = {workload: fastest(trials[workload], given) for workload in points}
        print(f"picked in {time.monotonic() - began:.0f} s", flush=True)
        kept = {workload: [points[workload][pick]] for workload, pick in picks.items()}
        rounds = [
            {
                workload: rows[0]
                for workload, rows in in_process(kept, BLOCKS, seed, folder, given).items()
            }
            for seed in range(1, options.processes + 1)
        ]
    rows = [confirmed(workload, kept[workload][0], rounds, given) for workload in kept]
    environment = {**basic_environment(), "date": time.strftime("%Y-%m-%d", time.gmtime())}
    write_json(options.out, {"environment": environment, "rows": rows})
    ratios = [row["ratio"] for row in rows]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"geometric mean {mean:.3f}, worst {max(ratios):.3f} of cuBLASLt's time", flush=True)
    return 0


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--kernel", choices=("gemm", "gemm_fp8"), default="gemm")
    parser.add_argument(
        "--sweep", type=Path, nargs="+", metavar="FILE", help="default: the stored result"
    )
    parser.add_argument("--finalists", type=int, default=4, help="of a row, from the sweep")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--only", default="", help="text that a row contains")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def fastest(rows: list[Row], given: Operands) -> int:
    """The index of the right point with the smallest median ratio."""
    right = [index for index, row in enumerate(rows) if row["error"] <= given.tolerance]
    if not right:
        raise SystemExit(f"no finalist of this row computes what torch computes: {rows}")
    return min(right, key=lambda index: rows[index]["interval"][0])


def confirmed(workload: str, point: Row, rounds: list[dict[str, Row]], given: Operands) -> Row:
    """A row of the result: medians of each process, and the ratio over processes."""
    each = [rows[workload] for rows in rounds]
    decision, whole = across_processes([Interval(*row["interval"]) for row in each])
    low, ratio, high = whole.ratios
    return {
        "workload": workload,
        "parameters": point["parameters"],
        "us": median([row["us"] for row in each]),
        "cublaslt_us": median([row["cublaslt_us"] for row in each]),
        "ratio": ratio,
        "ratio_low": low,
        "ratio_high": high,
        "decision": str(decision),
        "right": all(row["error"] <= given.tolerance for row in each),
        "processes": each,
    }


# ---- compiled here, timed in children ----


def prepared(
    sweeps: list[list[Row]], finalists: int, folder: Path, given: Operands
) -> dict[str, list[Row]]:
    """By row, the finalists with the file of their cubin and their launch."""
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    kernel = catalogue.kernel(given.kernel)
    template = kernel.template("wgmma")
    compiled = kernel.workload("square_4096").compile_time(kernel)
    toolchain = Toolchain(folder / "toolchain", usable_cores())

    def point(item: tuple[str, Items]) -> tuple[str, Row]:
        workload, parameters = item
        resolved = resolve(template, parameters, compiled, device("h200"))
        source = render(kernel, template, resolved, catalogue.include_dirs)
        cubin = (
            toolchain.compile(source, "sm_90a") if isinstance(source, RenderedSource) else source
        )
        if not isinstance(cubin, Cubin):
            raise SystemExit(f"{workload}: {dict(parameters)} does not compile: {cubin}")
        path = folder / f"{source.digest}.cubin"
        path.write_bytes(cubin.code)
        launch = described(kernel, template, resolved, workload)
        return workload, {"parameters": dict(parameters), "cubin": str(path), "launch": launch}

    # Each once: a finalist of two sweeps, or one whose later parameters have their defaults.
    items = dict.fromkeys(
        (row["workload"], complete_parameters(template, parameters, compiled))
        for sweep in sweeps
        for row in sweep
        for finalist in row["finalists"][:finalists]
        for parameters in with_short_steps(given.kernel, row["workload"], finalist["parameters"])
    )
    points: dict[str, list[Row]] = {}
    try:
        with ThreadPoolExecutor(usable_cores()) as threads:
            for workload, each in threads.map(point, items):
                points.setdefault(workload, []).append(each)
    finally:
        toolchain.close()
    return points


def with_short_steps(kernel: str, workload: str, parameters: Row) -> list[Row]:
    """Where K ends within a step, also with a short last one: sweeps multiply whole steps."""
    k = int(workload.partition("K=")[2].partition(",")[0])
    if kernel != "gemm" or "short_last" in parameters or k % STEP == 0:
        return [parameters]
    return [parameters, {**parameters, "short_last": True}]


def in_process(
    points: dict[str, list[Row]], blocks: int, seed: int, folder: Path, given: Operands
) -> dict[str, list[Row]]:
    """Times of all points in one fresh process."""
    request, reply = folder / f"request-{seed}.json", folder / f"reply-{seed}.json"
    asked = {"points": points, "blocks": blocks, "seed": seed, "reply": str(reply)}
    request.write_text(json.dumps({**asked, "kernel": given.kernel}))
    command = [sys.executable, "-m", "bench.gpu.gemm_confirm", str(request), "--child"]
    subprocess.run(command, check=True, timeout=CHILD_DEADLINE_S)
    times: dict[str, list[Row]] = read_json(reply)
    return times


# ---- in a child ----


def child(request: Row) -> int:
    import cupy
    import torch

    stream = cupy.cuda.Stream(non_blocking=True)
    torch_stream = torch.cuda.ExternalStream(stream.ptr)
    shift = 256 * random.Random(request["seed"]).randrange(PLACES)
    given = operands(request["kernel"])
    times: dict[str, list[Row]] = {}
    with stream, torch.cuda.stream(torch_stream), torch.no_grad():
        for workload, points in request["points"].items():
            memory = given.tensors(workload, shift)
            times[workload] = [
                timed(point, given, memory, request, stream, torch_stream) for point in points
            ]
    write_json(Path(request["reply"]), times)
    return 0


def timed(
    point: Row, given: Operands, tensors: Tensors, request: Row, stream: Any, torch_stream: Any
) -> Row:
    """The point and torch's product in turns: medians, and the interval of block log ratios."""
    import cupy
    import torch

    from greenfast.search.peers.duel import PeerCall, PeerStopwatch
    from greenfast.search.targets.cuda.launches import Loaded, Stopwatch

    call = PeerCall(lambda each: {"c": given.product(each)}, tensors)
    peer = PeerStopwatch([call], stream, DEADLINE_S, torch_stream)
    module = cupy.RawModule(path=point["cubin"])
    addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    loaded = Loaded(module, point["launch"], addresses, [])
    watch = Stopwatch([loaded], stream, DEADLINE_S)
    end = time.monotonic() + WARM_UP_S
    while time.monotonic() < end:
        watch(), peer()
    samples, others = race(watch, peer, request["seed"], looks=(request["blocks"],))
    _, interval = decide(block_log_ratios(samples, others))
    tensors["c"].fill_(float("nan"))
    watch.again()
    torch.cuda.synchronize()
    return {
        "us": median(samples),
        "cublaslt_us": median(others),
        "interval": [interval.median, interval.low, interval.high],
        "error": given.error_of(tensors["c"], given.exact(tensors)),
        "samples": [round(value, 3) for value in samples],
        "other_samples": [round(value, 3) for value in others],
    }


if __name__ == "__main__":
    raise SystemExit(main())
