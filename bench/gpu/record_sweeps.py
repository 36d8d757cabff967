"""The recordings that ship: complete sub-lattices of attention's templates, swept on a GPU.

    python -m bench.gpu.record_sweeps --count               candidates of each sweep (no GPU needed)
    python -m bench.gpu.record_sweeps --count 24            and how 24 random ones of each compile
    python -m bench.gpu.record_sweeps FOLDER [--seconds S] NAME ...
                                                            sweep, S seconds each; resumable
    python -m bench.gpu.record_sweeps FOLDER --finish NAME ...
                                                            write the journals, marked incomplete

Needs no more than the GPU target does: CuPy, NumPy, Jinja2, ml_dtypes and NVRTC's wheels.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import greenfast
from bench.command_line import require_gpu, script_parser
from bench.results import Row
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.workloads import Items
from greenfast.search.loop.sweep import Progress, Sweep, Sweeping, SweepOrder
from greenfast.search.loop.sweep_journal import finish
from greenfast.search.recordings.file import SUFFIX
from greenfast.search.recordings.lattice import lattice_of, lattice_points
from greenfast.search.render import render
from greenfast.search.space.space import Space, resolve
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.toolchain import CompileFailed, Toolchain

KERNEL = "attention"
# name: workload, template, baseline, values. With a fast baseline most candidates need only a few
# blocks.
SWEEPS = {
    "mission-mma-h200": (
        "mission",
        "mma",
        "mma:short",
        (
            "tile_m=all",
            "warps_m=all",
            "tile_n=32,64,128,256",
            "warps_n=1,2,4",
            "q_in=all",
            "split_kv=1,2,4",
            "pipeline_depth=1,2",
        ),
    ),
    "long-mma-h200": (
        "long",
        "mma",
        "mma:wide",
        (
            "tile_m=all",
            "warps_m=all",
            "tile_n=32,64,80,96,128,176",
            "q_in=registers,shared",
            "pipeline_depth=1,2,3",
            "min_blocks=1,2",
            "walk=all",
            "split_kv_wait=all",
        ),
    ),
    "d128-mma-h200": (
        "d128",
        "mma",
        "mma:fa2",
        (
            "tile_m=all",
            "warps_m=all",
            "tile_n=32,64,96,128,176",
            "q_in=registers,shared",
            "warps_n=1,2",
            "pipeline_depth=1,2,3",
            "min_blocks=1,2",
            "walk=all",
            "spread_copies=all",
            "split_kv_wait=all",
        ),
    ),
    "mission-wmma-h200": (
        "mission",
        "wmma",
        "wmma:fragments",
        (
            "tile_m=all",
            "tile_n=all",
            "warps_m=all",
            "warps_n=all",
            "pipeline_depth=all",
            "softmax_lanes=8,16",
            "o_in=all",
            "s_p_alias=all",
        ),
    ),
}


def order_of(name: str, catalogue: Catalogue) -> SweepOrder:
    workload, template, baseline, settings = SWEEPS[name]
    kernel = catalogue.kernel(KERNEL)
    lattice = lattice_of(kernel.template(template), settings)
    return SweepOrder(name, kernel, (kernel.workload(workload),), template, lattice, baseline)


def count(samples: int) -> None:
    """Print the number of candidates in each sweep, and how `samples` random ones compile."""
    catalogue = Catalogue.from_environment()
    for name in SWEEPS:
        order = order_of(name, catalogue)
        compiled = order.workloads[0].compile_time(order.kernel)
        space = Space(order.kernel.template(order.template), compiled, device("h200"))
        points = lattice_points(space, order.lattice)
        sample = random.Random(1).sample(points, min(samples, len(points)))
        outcomes = assembled(order, compiled, sample, catalogue)
        print(name, len(points), "candidates", dict(outcomes), flush=True)


def assembled(
    order: SweepOrder, compiled: Items, points: Sequence[Items], catalogue: Catalogue
) -> Counter[str]:
    """How many of the points have a compile failure of each reason, spill, or do neither."""
    template = order.kernel.template(order.template)
    with tempfile.TemporaryDirectory() as folder:
        toolchain = Toolchain(Path(folder), usable_cores())

        def outcome(point: Items) -> str:
            resolved = resolve(template, point, compiled, device("h200"))
            source = render(order.kernel, template, resolved, catalogue.include_dirs)
            cubin = toolchain.compile(source, "sm_90")
            if isinstance(cubin, CompileFailed):
                return cubin.reason.value
            return "spills" if any(entry.spill_bytes for entry in cubin.entries) else "no_spills"

        with ThreadPoolExecutor(usable_cores()) as pool:
            outcomes = Counter(pool.map(outcome, points))
        toolchain.close()
    return outcomes


def sweep(folder: Path, names: list[str], seconds: float | None) -> int:
    """Run the named sweeps, `seconds` each; 0 if every one is complete."""
    require_gpu()
    folder.mkdir(parents=True, exist_ok=True)
    catalogue, cores = Catalogue.from_environment(), usable_cores()
    with tempfile.TemporaryDirectory(prefix="greenfast-record-") as cache:
        toolchain = Toolchain(Path(cache), cores)
        target = open_target("cuda:0", TargetSettings(Path(cache), catalogue.include_dirs, 1))
        complete = True
        try:
            for name in names:
                begin = time.monotonic()
                running = Sweep(
                    order_of(name, catalogue),
                    target,
                    toolchain,
                    catalogue.include_dirs,
                    greenfast.__version__,
                )
                report = running.run(folder / f"{name}{SUFFIX}", 2 * cores, seconds, Lines(name))
                took = time.monotonic() - begin
                print(json.dumps(summary(name, report, took)), flush=True)
                complete = complete and report.recording is not None
        finally:
            target.close()
            toolchain.close()
    return 0 if complete else 1


def summary(name: str, report: Sweeping, seconds: float) -> Row:
    recording = report.recording
    outcomes = Counter(
        f"{row.stage or 'right'} {row.reason or 'faster'}"
        for row in (recording.rows if recording else ())
    )
    return {
        "name": name,
        "recorded": report.done,
        "of": report.total,
        "seconds": round(seconds, 1),
        "complete": recording is not None and recording.heading.complete,
        "timed": recording.heading.timed if recording else None,
        "said": dict(outcomes),
        "faults": report.faults[:5],
    }


class Lines:
    """A line of progress every five seconds."""

    def __init__(self, name: str) -> None:
        self._name, self._next = name, 0.0

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 5.0
            left = (
                f", {progress.seconds_left:.0f} s left" if progress.seconds_left is not None else ""
            )
            print(
                f"{self._name} {progress.done}/{progress.total}, {progress.timed} timed, "
                f"{progress.per_second:.1f} a second{left}",
                file=sys.stderr,
                flush=True,
            )


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("--count", nargs="?", const=0, type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--finish", action="store_true")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SWEEPS))
    options = parser.parse_intermixed_args()
    if options.count is not None:
        count(options.count)
        return 0
    if options.folder is None or not options.names:
        parser.error("FOLDER and a sweep's NAME are needed")
    if unknown := [name for name in options.names if name not in SWEEPS]:
        parser.error(f"no such sweep: {', '.join(unknown)}; known: {', '.join(SWEEPS)}")
    if options.finish:
        for name in options.names:
            print(name, len(finish(options.folder / f"{name}{SUFFIX}").rows), "candidates")
        return 0
    return sweep(options.folder, options.names, options.seconds)


if __name__ == "__main__":
    sys.exit(main())
