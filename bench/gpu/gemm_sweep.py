"""Every preset of gemm/wgmma, and points near them, on all rows of bench.gpu.hopper_rows.

    python -m bench.gpu.gemm_sweep OUT.json [--kernel gemm_fp8] [--near 1] [--no-grid]
                                   [--only TEXT] [--seconds 240]

A fast look for the choice of presets, in one process: the dims of gemm are arguments of the launch,
so each point is compiled once and timed on every row that it suits, L2 hot, as torch's product
(cuBLASLt: linear, or _scaled_mm on fp8 codes) is. Points are the presets, some near them, and grids
of tiles with the deepest ring that fits: large tiles, tiles of which several blocks share K, and
turned products for few tokens. The fastest five of a row are then timed in turns with it. Each
output is compared with the exact product, and so is torch's. Published times come from searches;
these have no confirmation in fresh processes.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from bench.command_line import require_gpu, script_parser
from bench.environment import basic_environment
from bench.gpu.gemm_operands import Operands, Tensors, operands
from bench.gpu.hopper_rows import GEMM, GEMM_FP8
from bench.results import Row, write_json
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workloads import Items, complete_dims, complete_options
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.problem import launches, tensor_maps
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import (
    complete_parameters,
    preset_candidate,
)
from greenfast.search.space.space import Resolved, Space, resolve
from greenfast.search.toolchain.nvrtc import Cubin, Toolchain

SEED, DEADLINE_S = 7, 20.0
SCREEN_SAMPLES, FINALISTS, TURNS = 3, 5, 12
TRIES = 20
# Columns of the product, rows of a warpgroup, and whether the product is turned.
LARGE = (
    *((columns, 64, False) for columns in (128, 160, 192, 224, 256)),
    *((columns, 128, False) for columns in (96, 128, 160, 192)),
    (128, 128, True),
    (144, 128, True),
)
# Tiles of one warpgroup, where two work in turns.
TURNS_TILES = (
    *((columns, 64, False) for columns in (128, 192, 256)),
    *((columns, 128, False) for columns in (96, 128, 144, 160, 192)),
    (128, 128, True),
)
WORSE = 1.5  # a first sample beyond this multiple of the best ends a point's row


@dataclass(frozen=True)
class Point:
    """A point of the space with its cubin."""

    name: str  # of the preset, or of the preset that it lies near
    parameters: Items
    resolved: Resolved
    cubin: Cubin


def main() -> int:
    options = _options()
    require_gpu()
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    kernel = catalogue.kernel(options.kernel)
    template = kernel.template("wgmma")
    began = time.monotonic()
    workloads = [workload for workload in sizes(kernel.name) if options.only in workload]
    tokens = [int(workload.partition(",")[0].removeprefix("M=")) for workload in workloads]
    points = compiled_points(kernel, template, catalogue, options.near, options.grid, tokens)
    print(f"{len(points)} points compiled in {time.monotonic() - began:.0f} s", flush=True)
    rows: list[Row] = []
    bench = GpuBench(kernel, template)
    for workload in workloads:
        if time.monotonic() - began > options.seconds:
            break
        rows.append(bench.row(workload, points))
        best = rows[-1]["finalists"][0] if rows[-1]["finalists"] else None
        print(json.dumps({**rows[-1], "points": None, "finalists": best})[:500], flush=True)
        environment = {**basic_environment(), "date": time.strftime("%Y-%m-%d", time.gmtime())}
        write_json(options.out, {"environment": environment, "rows": rows})
    ratios = [row["finalists"][0]["ratio"] for row in rows if row["finalists"]]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean {mean:.3f}, worst {max(ratios):.3f} of cuBLASLt's time", flush=True)
    return 0


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--kernel", choices=("gemm", "gemm_fp8"), default="gemm")
    parser.add_argument("--no-grid", dest="grid", action="store_false", help="no grids of tiles")
    parser.add_argument("--near", type=int, default=1, help="points near each preset")
    parser.add_argument("--only", default="", help="text that a row contains")
    parser.add_argument("--seconds", type=float, default=240.0, help="begin no row after these")
    return parser.parse_args()


def sizes(kernel: str) -> list[str]:
    """The rows of hopper_rows whose operands are those of gemm_operands."""
    rows = GEMM_FP8 if kernel == "gemm_fp8" else GEMM
    return [workload for workload, _ in rows if workload.count(",") == 2]


# ---- points ----


def drawn_points(space: Space, template: TemplateSpec, near: int) -> Iterator[tuple[str, Items]]:
    """Presets, then points that differ from each in one to three parameters."""
    compiled, rng = space.compiled, random.Random(SEED)
    presets = {
        preset.name: preset_candidate(template, preset.name, compiled).parameters
        for preset in template.presets
    }
    yield from presets.items()
    seen = set(presets.values())
    for name, start in presets.items():
        fresh = 0
        for _ in range(TRIES * near):
            changed = dict(start)
            for parameter in rng.sample(template.parameters, rng.randint(1, 3)):
                changed[parameter.name] = rng.choice(parameter.values)
            parameters = complete_parameters(template, changed, compiled)
            if fresh < near and parameters not in seen and space.is_valid(parameters):
                fresh += 1
                seen.add(parameters)
                yield f"near {name}", parameters


def grid_points(space: Space, template: TemplateSpec) -> Iterator[tuple[str, Items]]:
    """Tiles of each class with the deepest ring that fits."""

    def deepest(name: str, **given: Value) -> Iterator[tuple[str, Items]]:
        for stages in reversed(template_values(template, "stages")):
            values = {**given, "stages": stages}
            parameters = complete_parameters(template, values, space.compiled)
            if space.is_valid(parameters):
                yield name, parameters
                return

    clusters = ({}, {"cluster_rows": 2}, {"cluster_columns": 2})
    for (tile_n, rows, swap), cluster, buffers, raster in product(LARGE, clusters, (2, 4), (4, 16)):
        yield from deepest(
            "large",
            swap=swap,
            tile_n=tile_n,
            consumer_rows=rows,
            store_buffers=buffers,
            raster_rows=raster,
            **cluster,
        )
    for (tile_n, rows, swap), cluster, split in product(LARGE, clusters[:2], (2, 4)):
        yield from deepest(
            "split",
            swap=swap,
            tile_n=tile_n,
            consumer_rows=rows,
            split_k=split,
            scheduler="grid",
            store_buffers=1,
            raster_rows=1,
            **cluster,
        )
    for (tile_n, rows, swap), cluster, raster in product(TURNS_TILES, clusters, (1, 4, 16)):
        yield from deepest(
            "turns",
            swap=swap,
            turns=True,
            tile_n=tile_n,
            consumer_rows=rows,
            store_buffers=2 if rows == 128 else 1,
            raster_rows=raster,
            **cluster,
        )
    tiles = ((1, 64), (2, 64), (2, 128))
    for (consumers, rows), tokens, split, blocks, cluster in product(
        tiles, (16, 64), (1, 2, 4, 8), (1, 2, 3), clusters[:2]
    ):
        yield from deepest(
            "few",
            swap=True,
            tile_n=tokens,
            consumers=consumers,
            consumer_rows=rows,
            split_k=split,
            scheduler="grid",
            blocks_per_sm=blocks,
            store_buffers=1,
            raster_rows=16,
            **cluster,
        )


def template_values(template: TemplateSpec, name: str) -> tuple[Value, ...]:
    return next(each.values for each in template.parameters if each.name == name)


def suits(name: str, m: int) -> bool:
    """Whether a point of this grid, or of no grid, is worth a look at m tokens."""
    suits = {"few": m <= 128, "split": 64 <= m <= 1100, "large": m >= 128, "turns": m >= 128}
    return suits.get(name, True)


def compiled_points(
    kernel: KernelSpec,
    template: TemplateSpec,
    catalogue: Catalogue,
    near: int,
    grid: bool,
    tokens: list[int],
) -> list[Point]:
    """The points that suit one of these numbers of tokens and compile without spilling."""
    compiled = kernel.workload("square_4096").compile_time(kernel)
    space = Space(template, compiled, device("h200"))
    presets = {item[1]: item for item in drawn_points(space, template, near)}
    tiles = {item[1]: item for item in grid_points(space, template)} if grid else {}
    points = {**tiles, **presets}.values()
    drawn = [item for item in points if any(suits(item[0], m) for m in tokens)]
    return compiled_without_spills(kernel, template, catalogue, compiled, drawn)


def compiled_without_spills(
    kernel: KernelSpec,
    template: TemplateSpec,
    catalogue: Catalogue,
    compiled: Items,
    drawn: Iterable[tuple[str, Items]],
) -> list[Point]:
    """The named parameter values that render and compile without spilling."""
    with tempfile.TemporaryDirectory(prefix="greenfast-sweep-") as folder:
        toolchain = Toolchain(Path(folder), usable_cores())

        def compiled_point(item: tuple[str, Items]) -> Point | None:
            name, parameters = item
            resolved = resolve(template, parameters, compiled, device("h200"))
            source = render(kernel, template, resolved, catalogue.include_dirs)
            if not isinstance(source, RenderedSource):
                return None
            cubin = toolchain.compile(source, "sm_90a")
            if not isinstance(cubin, Cubin) or any(e.spill_bytes for e in cubin.entries):
                return None
            return Point(name, parameters, resolved, cubin)

        try:
            with ThreadPoolExecutor(usable_cores()) as threads:
                return [point for point in threads.map(compiled_point, drawn) if point]
        finally:
            toolchain.close()


# ---- launches ----


def described(
    kernel: KernelSpec, template: TemplateSpec, point: Resolved, workload: str
) -> dict[str, Any]:
    """The launch of a point on contiguous tensors, in the form that the GPU's child takes."""
    given = {name: int(size) for name, size in (item.split("=") for item in workload.split(","))}
    dims = complete_dims(given, kernel.dims, workload)
    options = complete_options({}, kernel.options, workload)
    values = Case(workload, dims, options, "normal", "contiguous", SEED, ()).values(kernel)
    tensors = [argument for argument in kernel.arguments if argument.kind != "scalar"]
    strides = {
        argument.name: tuple(
            math.prod(int(values[size]) for size in argument.shape[axis + 1 :])
            for axis in range(len(argument.shape))
        )
        for argument in tensors
    }
    scalars, arguments = {}, []
    for argument in kernel.arguments:
        if argument.kind != "scalar":
            arguments.append({"buffer": argument.name})
            continue
        owner = argument.stride_of
        value = strides[owner[0]][owner[1]] if owner else argument.value(values)
        scalars[argument.name] = value
        arguments.append({"scalar": argument.dtype, "value": value})
    launch_values = {**values, **point.values}
    maps = tensor_maps(template, launch_values, strides, scalars)
    arguments += [{"tensor_map": each.numbers()} for each in maps]
    return {
        "launches": [
            {
                "entry": launch.entry,
                "grid": list(launch.grid),
                "block": list(launch.block),
                "smem": launch.smem_dynamic_bytes,
                "arguments": arguments,
            }
            for launch in launches(template, launch_values)
        ]
    }


class GpuBench:
    """Times points beside torch's product on the first GPU."""

    def __init__(self, kernel: KernelSpec, template: TemplateSpec) -> None:
        import cupy
        import torch

        self._kernel, self._template, self._torch, self._cupy = kernel, template, torch, cupy
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._torch_stream = torch.cuda.ExternalStream(self._stream.ptr)
        self._modules: dict[int, Any] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="greenfast-cubins-")

    def row(self, workload: str, points: list[Point]) -> Row:
        torch = self._torch
        given = operands(self._kernel.name)
        with self._stream, torch.cuda.stream(self._torch_stream), torch.no_grad():
            return self._timed(workload, points, given, given.tensors(workload))

    def _timed(self, workload: str, points: list[Point], given: Operands, tensors: Tensors) -> Row:
        from greenfast.search.peers.duel import PeerCall, PeerStopwatch

        call = PeerCall(lambda each: {"c": given.product(each)}, tensors)
        peer = PeerStopwatch([call], self._stream, DEADLINE_S, self._torch_stream)
        expected = given.exact(tensors)
        _warm_up(peer)
        alone_us = _median([peer() for _ in range(5)])
        best_us, results = math.inf, []
        for number, point in enumerate(points):
            if not suits(point.name, tensors["a"].shape[0]):
                continue
            watch = self._watch(number, point, workload, tensors)
            first_us = watch()
            samples = [first_us]
            if first_us < WORSE * best_us:
                samples += [watch() for _ in range(SCREEN_SAMPLES - 1)]
            us = _median(samples)
            best_us = min(best_us, us)
            tensors["c"].fill_(float("nan"))
            watch.again()
            self._torch.cuda.synchronize()
            results.append((us, given.error_of(tensors["c"], expected), number, point))
        right = [item for item in results if item[1] <= given.tolerance]
        finalists = []
        for _, off, number, point in sorted(right, key=lambda item: item[0])[:FINALISTS]:
            watch = self._watch(number, point, workload, tensors)
            ours, theirs = _in_turns(watch, peer)
            finalists.append(
                {
                    "point": point.name,
                    "parameters": dict(point.parameters),
                    "us": ours,
                    "cublaslt_us": theirs,
                    "ratio": ours / theirs,
                    "error": off,
                }
            )
        finalists.sort(key=lambda row: row["ratio"])
        return {
            "workload": workload,
            "cublaslt_us": alone_us,
            "cublaslt_error": given.error_of(given.product(tensors), expected),
            "wrong": [point.name for _, off, _, point in results if not off <= given.tolerance],
            "finalists": finalists,
            "points": [
                {
                    "point": point.name,
                    "us": round(us, 2),
                    "parameters": list(dict(point.parameters).values()),
                }
                for us, _, _, point in sorted(results, key=lambda item: item[0])
            ],
        }

    def _watch(self, number: int, point: Point, workload: str, tensors: dict[str, Any]) -> Any:
        from greenfast.search.targets.cuda.launches import Loaded, Stopwatch

        if number not in self._modules:
            path = Path(self._folder.name) / f"{number}.cubin"
            path.write_bytes(point.cubin.code)
            self._modules[number] = self._cupy.RawModule(path=str(path))
        launch = described(self._kernel, self._template, point.resolved, workload)
        addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
        loaded = Loaded(self._modules[number], launch, addresses, [])
        return Stopwatch([loaded], self._stream, DEADLINE_S)


def _warm_up(time_once: Callable[[], float], seconds: float = 0.2) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time_once()


def _in_turns(ours: Callable[[], float], theirs: Callable[[], float]) -> tuple[float, float]:
    pairs = [(ours(), theirs()) if turn % 2 else (theirs(), ours())[::-1] for turn in range(TURNS)]
    return _median([pair[0] for pair in pairs]), _median([pair[1] for pair in pairs])


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


if __name__ == "__main__":
    raise SystemExit(main())
