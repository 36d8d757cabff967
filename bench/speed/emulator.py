"""The emulator's speed: GFLOP/s of attention kernels in each build, and compile seconds.

Wall times are medians of the repeats, and processor times their minima. The last line is how many
times the processor time of a plain run a checked one takes.

python -m bench.speed.emulator [--save]
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.command_line import add_save, script_parser
from bench.environment import publish
from bench.results import Row
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.problem import lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.render import render
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve
from greenfast.search.targets.emulator.build import EmulatorBuild
from greenfast.search.targets.emulator.execute import execute
from greenfast.search.targets.emulator.flags import FLAVOURS
from greenfast.search.targets.emulator.host_compiler import find_host_compiler
from greenfast.search.targets.emulator.problem_run import emulated_run

WORKLOAD = "mission"
REPEATS = 5
PRESETS = (
    "mma:fa2",
    "wmma:stage2",
    "wmma:flashcore_a64",
    "wmma:fragments",
    "scalar:minimal",
    "scalar:vec",
)


def measure(
    build: EmulatorBuild, catalogue: Catalogue, preset: str, flavour: str, workers: int
) -> Row:
    """Several runs of one preset in one build of the emulator."""
    kernel = catalogue.kernel("attention")
    template, named = kernel.preset(preset)
    workload = kernel.workload(WORKLOAD)
    compiled = workload.compile_time(kernel)
    candidate = preset_candidate(template, named.name, compiled)
    point = resolve(template, candidate.parameters, compiled, device("h200"))
    source = render(kernel, template, point, catalogue.include_dirs)
    case = workload_case(workload, 0)
    laid_out = lay_out(kernel, template, point, case, case_data(kernel, case))
    module = build.build_module(source.unit, source.entries, flavour=flavour, deadline_s=60.0)
    run = emulated_run(
        laid_out, "forward", "bench", device=device("h200"), check=flavour == "checked"
    )
    results = [
        execute(build, module, [run], workers=workers, deadline_s=120.0, memory_bytes=2**32)[0]
        for _ in range(REPEATS)
    ]
    wall_s = statistics.median(result.wall_s for result in results)
    cpu_s = min(result.cpu_s for result in results)
    return {
        "preset": preset,
        "workload": WORKLOAD,
        "build": flavour,
        "workers": workers,
        "compile_s": round(module.build_s, 3),
        "wall_s": round(wall_s, 4),
        "cpu_s": round(cpu_s, 4),
        "gflop_per_s": round(laid_out.work_flop / wall_s / 1e9, 2),
        "gflop_per_cpu_s": round(laid_out.work_flop / cpu_s / 1e9, 2),
    }


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    options = parser.parse_args()
    catalogue = Catalogue.from_environment()
    with tempfile.TemporaryDirectory() as folder:
        build = EmulatorBuild(Path(folder), find_host_compiler(), catalogue.include_dirs)
        started = time.perf_counter()
        build.prepare()
        build_s = round(time.perf_counter() - started, 2)
        rows = [{"what": "build the emulator itself", "wall_s": build_s}]
        rows += [
            measure(build, catalogue, preset, flavour, usable_cores())
            for preset in PRESETS
            for flavour in FLAVOURS
        ]
    ratios = checked_over_plain(rows)
    publish("emulator", rows, save=options.save)
    texts = ", ".join(f"{preset} {ratio:.2f}" for preset, ratio in ratios.items())
    print(
        f"checked over plain, processor time: {texts}; mean {statistics.mean(ratios.values()):.2f}"
    )


def checked_over_plain(rows: Sequence[Row]) -> dict[str, float]:
    """By preset, the ratio of a checked run's processor time to a plain run's."""
    cpu_s = {(row["preset"], row["build"]): row["cpu_s"] for row in rows if "preset" in row}
    return {
        preset: cpu_s[preset, "checked"] / cpu_s[preset, "plain"]
        for preset in dict.fromkeys(preset for preset, _ in cpu_s)
    }


if __name__ == "__main__":
    main()
