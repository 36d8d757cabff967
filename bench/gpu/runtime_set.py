"""Measures the pool of attention kernels, makes the shipped set from it, and times its calls.

    python -m bench.gpu.runtime_set FOLDER [--parts times,set,tables] [--seconds 420] [--gpu h200]
                                           [--after RESULT] [--new]
    python -m bench.gpu.runtime_set FOLDER --store [--gpu h200]

The first form needs an H200 or H100. Each part runs in its own process: `times` runs grid_times for
both types, and `set` runs grid_set, which compiles. `tables` uses the new set for the sixty shapes
beside their peers (runtime_calls), drawn shapes beside the fallback (drawn_calls) and the host's
times (runtime_overhead). With --new, `times` times the points that the stored results lack, and
joins them with the stored times (grid_join).

FOLDER is laid out like bench/results, and also receives the set. If a step fails, the later ones
still run. --seconds limits `times`, which continues with the contents of FOLDER; the other parts
take about 3 minutes.

--store needs no GPU. It copies the results and the set from FOLDER into the repository, and writes
the regret (rule_regret) and the page.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench.command_line import require_gpu, script_parser
from bench.gpu.measured_gpu import add_gpu, result_of, set_name
from bench.gpu.tuned_set import SETS
from bench.results import ROOT, Row, read_result, result_names, write_result

SHARES = {"bf16": 0.7, "fp16": 0.3}  # of the seconds
TABLE_S = 60  # at most, of each table
Step = tuple[str, ...]  # a module and its arguments


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--parts", default="times,set,tables")
    parser.add_argument("--seconds", type=float, default=420.0, help="for the part times")
    parser.add_argument(
        "--after", default="", metavar="RESULT", help="of bf16, as grid_times takes it"
    )
    parser.add_argument("--new", action="store_true", help="points without stored times alone")
    add_gpu(parser)
    parser.add_argument("--store", action="store_true", help="take FOLDER into the repository")
    options = parser.parse_args()
    folder: Path = options.folder.absolute()
    if options.store:
        return store(folder, options.gpu)
    require_gpu()
    folder.mkdir(parents=True, exist_ok=True)
    steps = {
        "times": times(folder, options.seconds, options.gpu, options.after, new=options.new),
        "set": make_set(folder, options.gpu),
        "tables": tables(folder, options.gpu),
    }
    chosen = options.parts.split(",")
    if unknown := set(chosen) - steps.keys():
        parser.error(f"unknown part {min(unknown)!r}; known: {', '.join(steps)}")
    failed = 0
    name = set_name(options.gpu)
    if not (folder / name).is_file() and (SETS / name).is_file():
        shutil.copy(SETS / name, folder / name)  # whose types are replaced one by one
    for part in chosen:
        for step in steps[part]:
            failed += not is_done(step)
        if part == "set":
            shutil.copy(folder / name, SETS / name)
    return 1 if failed else 0


def is_done(step: Step) -> bool:
    began = time.perf_counter()
    print(f"== {' '.join(step)}", flush=True)
    status = subprocess.run([sys.executable, "-m", *step], cwd=ROOT, check=False).returncode
    print(f"== {step[0]}: {time.perf_counter() - began:.0f} s, exit code {status}", flush=True)
    return status == 0


def times(folder: Path, seconds: float, gpu: str, after: str, *, new: bool) -> list[Step]:
    def step(dtype: str, *more: str) -> Step:
        limit = ("--seconds", str(round(SHARES[dtype] * seconds)))
        grid = ("bench.gpu.grid_times", str(folder), "--gpu", gpu, "--dtype", dtype)
        return (*grid, *limit, *more)

    first = ("--new",) if new else ("--after", after) if after else ()
    steps = [
        step("bf16", *first),
        step("fp16", "--after", result_of("runtime_grid", "bf16", gpu)),
    ]
    join = ("bench.gpu.grid_join", str(folder), "--gpu", gpu, "--times")
    return [*steps, join] if new else steps


def make_set(folder: Path, gpu: str) -> list[Step]:
    out = str(folder / set_name(gpu))
    grid = ("bench.gpu.grid_set", "--results", str(folder), "--out", out, "--gpu", gpu)
    return [(*grid, "--dtype", dtype) for dtype in SHARES]


def tables(folder: Path, gpu: str) -> list[Step]:
    def file(name: str) -> str:
        return str(folder / gpu / f"{name}.json")

    limit = ("--seconds", str(TABLE_S))
    called, none = "bench.gpu.runtime_calls", ("--calls", "0")
    return [
        (called, file("runtime_table"), *none, *limit),
        (called, file("runtime_table_fp16"), *none, "--dtype", "fp16", *limit),
        ("bench.gpu.drawn_calls", file("drawn_calls"), "--count", "400", *limit),
        ("bench.gpu.runtime_overhead", file("runtime_overhead")),
    ]


# ---- without a GPU ----


def store(folder: Path, gpu: str) -> int:
    """The number of steps that failed."""
    for name in result_names(folder):
        if name.startswith(f"{gpu}/"):
            write_result(name, stored_form(read_result(name, folder)))
            print(name)
    name = set_name(gpu)
    if (folder / name).is_file():
        shutil.copy(folder / name, SETS / name)
    steps: list[Step] = [
        ("bench.gpu.rule_regret", "--save", "--gpu", gpu),
        ("bench.pages.runtime_page", "--save"),
    ]
    return sum(not is_done(step) for step in steps)


def stored_form(result: Row) -> Row:
    """A table of runtime_calls as the page reads it; other results as they are."""
    if "table" not in result:
        return result
    kept = {name: result[name] for name in ("environment", "summary")}
    return {**kept, "rows": result["table"]}


if __name__ == "__main__":
    raise SystemExit(main())
