"""The same kernel and space through Kernel Tuner and through greenfast: candidates a minute.

    python -m bench.gpu.kernel_tuner_rate OUT.json [--template NAME] [--candidates 100]
                                          [--trials 300] [--targets cuda:0 cuda:all]

The space is a template of attention on one workload, without points that need a workspace,
a second launch, or more shared memory than a launch gets unasked, which Kernel Tuner's CuPy backend
does not set. Kernel Tuner draws nothing: it gets that many random points of the space as its whole
space, compiles, verifies (one case, its own comparison) and times each one with its defaults.
greenfast searches the template with all gates, from empty caches. It gets more candidates, because
its first three seconds have no work for the GPU. Rejected candidates count for both. Both use
greenfast's NVRTC and its headers.

A candidate that ends the GPU's context, or is wrong, would end Kernel Tuner's search. Each is
therefore launched in a process of its own first (`kernel_tuner_alone.py`), before the clock starts;
those that fail are left out and are in the result. Results are written as they come. Kernel Tuner
1.5.0 with CuPy must be installed; neither is a dependency of greenfast.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from bench.command_line import require_gpu, script_parser
from bench.gpu.kernel_tuner_alone import Point, argument, one_compiler
from bench.gpu.search_rate import SEED, measured
from bench.gpu.two_gpus import with_checker
from bench.results import Row, write_json
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import Device, device
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.workloads import Items
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.problem import Tensor, lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.space import Space, resolve

PROCESSES = 8  # that launch a candidate alone at a time
ALONE_S = 20.0  # for one of them
STAGES = ("compile", "verification", "benchmark", "strategy", "framework")
UNASKED_SMEM_BYTES = 48 * 1024  # dynamic shared memory of a launch without an attribute


def points(
    catalogue: Catalogue, workload_name: str, template_name: str, facts: Device, count: int
) -> list[Point]:
    """Random points of the space that Kernel Tuner can launch."""
    kernel = catalogue.kernel("attention")
    workload, template = kernel.workload(workload_name), kernel.template(template_name)
    compiled = workload.compile_time(kernel)
    case = workload_case(workload, SEED)
    data = case_data(kernel, case)
    expected = data.outputs["o"]
    answer, atol = expected.value.astype(np.float16), float(expected.bound.max())
    space, draws = Space(template, compiled, facts), random.Random(SEED)
    drawn: dict[Items, Point] = {}
    while len(drawn) < count:
        parameters = space.drawn(draws)
        point = resolve(template, parameters, compiled, facts)
        source = render(kernel, template, point, catalogue.include_dirs)
        problem = lay_out(kernel, template, point, case, data, optional_outputs=False)
        launches = problem.launches
        if (
            isinstance(source, RenderedSource)
            and not problem.workspaces
            and len(launches) == 1
            and launches[0].smem_dynamic_bytes <= UNASKED_SMEM_BYTES
            and launches[0].block[1:] == (1, 1)
        ):
            name = " ".join(f"{key}={value}" for key, value in parameters)
            drawn[parameters] = Point(name, source.text, problem, answer, atol)
    return list(drawn.values())


def launched_alone(
    chosen: Sequence[Point], folder: Path, deadline: float
) -> tuple[list[Point], list[Row]]:
    """The points that Kernel Tuner can search, and a row for each that would end its search."""

    def errors(number: int) -> dict[str, str]:
        file = folder / f"{number}.pickle"
        file.write_bytes(pickle.dumps(chosen[number]))
        found = {"source": error_alone(file, "source", deadline)}
        if found["source"]:
            found["cubin"] = error_alone(file, "cubin", deadline)
        return found

    with ThreadPoolExecutor(min(PROCESSES, usable_cores())) as pool:
        found = list(pool.map(errors, range(len(chosen))))
    pairs = list(zip(chosen, found, strict=True))
    left_out = [
        {"point": point.name, "with_cupy": each["source"], "with_our_cubin": each["cubin"] or "ran"}
        for point, each in pairs
        if each["source"]
    ]
    return [point for point, each in pairs if not each["source"]], left_out


def error_alone(file: Path, way: str, deadline: float) -> str:
    """How a launch in a process of its own failed; empty if it ended well."""
    command = [sys.executable, "-m", "bench.gpu.kernel_tuner_alone", str(file), way]
    left_s = min(ALONE_S, deadline - time.monotonic())
    if left_s <= 0:
        return "not tried: the time was over"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=left_s, check=False)
    except subprocess.TimeoutExpired:
        return f"no end after {left_s:.0f} s"
    try:
        return str(json.loads(done.stdout)["error"])
    except (ValueError, KeyError):
        return f"exit code {done.returncode}: {done.stderr[-200:]}"


def with_kernel_tuner(chosen: Sequence[Point]) -> Row:
    """The rate of Kernel Tuner over these points."""
    compiler_options = one_compiler()  # before Kernel Tuner loads CuPy
    from cupy.cuda import nvrtc
    from kernel_tuner import tune_kernel

    problem = chosen[0].problem
    arguments = [argument(each) for each in problem.arguments]
    outputs = [isinstance(each, Tensor) and each.role != "input" for each in problem.arguments]
    threads = [point.threads for point in chosen]

    def fits(configuration: Any) -> bool:
        return bool(configuration["gf_threads"] == threads[int(configuration["gf_point"])])

    def point_of(configuration: Any) -> Point:
        return chosen[int(configuration["gf_point"])]

    started = time.perf_counter()
    results, environment = tune_kernel(
        problem.launches[0].entry,
        lambda configuration: point_of(configuration).text,
        lambda configuration: point_of(configuration).problem.launches[0].grid,
        arguments,
        {"gf_point": list(range(len(chosen))), "gf_threads": sorted(set(threads))},
        grid_div_x=[],
        grid_div_y=[],
        grid_div_z=[],
        block_size_names=["gf_threads", "gf_block_y", "gf_block_z"],
        restrictions=fits,
        answer=[chosen[0].answer if is_output else None for is_output in outputs],
        atol=chosen[0].atol,
        lang="cupy",
        smem_args={
            "size": lambda configuration: (
                point_of(configuration).problem.launches[0].smem_dynamic_bytes
            )
        },
        compiler_options=list(compiler_options),
    )
    wall_s = time.perf_counter() - started
    right = [row for row in results if isinstance(row.get("time"), float)]
    return {
        "tuner": f"Kernel Tuner {importlib.metadata.version('kernel_tuner')}",
        "candidates": len(chosen),
        "timed": len(right),
        "wall_s": round(wall_s, 2),
        "candidates_per_minute": round(60 * len(chosen) / wall_s, 1),
        "fastest_us": round(1e3 * min((row["time"] for row in right), default=0.0), 3),
        "gpu": str(environment.get("device_name", "")),
        "nvrtc": list(nvrtc.getVersion()),
        # Its own sums over the candidates.
        "stages_s": {
            stage: round(float(environment.get(f"total_{stage}_time", 0.0)) / 1e3, 2)
            for stage in STAGES
        },
    }


def with_greenfast(catalogue: Catalogue, options: argparse.Namespace, target: str) -> Row:
    """A search over the template, as bench.gpu.search_rate measures it."""
    request = {
        "kernel": "attention",
        "workloads": (options.workload,),
        "templates": (options.template,),
        "target": target,
        "strategy": "random",
        "seed": SEED,
        "confirm": False,
        "cold": True,
        "seconds": options.seconds,
        "trials": options.trials or 3 * options.candidates,
    }
    with tempfile.TemporaryDirectory(prefix="greenfast-rate-") as folder:
        setting = with_checker(catalogue, request, 2 * usable_cores(), Path(folder))
        try:
            row = measured(setting)
        finally:
            if setting.checker is not None:
                setting.checker.close()
    return {
        "tuner": "greenfast",
        "candidates": row["trials"],
        "timed": sum(gpu["trials_timed"] for gpu in row["gpus"].values()),
        "gpus": list(row["gpus"]),
        "wall_s": row["search_s"],
        "candidates_per_minute": row["trials_per_minute"],
        "environment": row["environment"],
    }


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--template", default="mma")
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument(
        "--trials", type=int, help="of greenfast's search; default three times --candidates"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of greenfast's search")
    parser.add_argument("--alone-seconds", type=float, default=40.0, help="of launches alone")
    parser.add_argument("--workload", default="mission")
    parser.add_argument(
        "--targets",
        nargs="+",
        default=["cuda:0"],
        help="of one search each; Kernel Tuner uses the first GPU",
    )
    options = parser.parse_args()
    require_gpu()
    deadline = time.monotonic() + options.alone_seconds
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    drawn = points(
        catalogue, options.workload, options.template, device("h200"), options.candidates
    )
    with tempfile.TemporaryDirectory(prefix="greenfast-alone-") as folder:
        chosen, left_out = launched_alone(drawn, Path(folder), deadline)
    result: Row = {
        "workload": options.workload,
        "template": options.template,
        "cores": usable_cores(),
        "drawn": len(drawn),
        "left_out": left_out,
    }
    write_json(options.out, result)
    print(f"{len(chosen)} of {len(drawn)} candidates run through CuPy", file=sys.stderr, flush=True)
    if not chosen:
        raise SystemExit(f"no candidate runs through CuPy: {left_out[0]}")
    with tempfile.TemporaryDirectory(prefix="greenfast-cupy-") as cache:
        os.environ["CUPY_CACHE_DIR"] = cache  # no kernel of an earlier run
        rows = [with_kernel_tuner(chosen)]
    write_json(options.out, {**result, "rows": rows})
    print(rows[0], file=sys.stderr, flush=True)
    for target in options.targets:
        row = with_greenfast(catalogue, options, target)
        environment = row.pop("environment")
        row["ratio"] = round(row["candidates_per_minute"] / rows[0]["candidates_per_minute"], 2)
        rows.append(row)
        # `ratio` of the first target, on which greenfast has no more GPUs than Kernel Tuner.
        whole = {"environment": environment, **result, "ratio": rows[1]["ratio"], "rows": rows}
        write_json(options.out, whole)
        print(row, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
