"""Nsight Compute's counters of the winners of hopper_rows and of FlashAttention's kernels.

    python -m bench.gpu.row_counters ROWS.zip OUT.json [--only TEXT ...]      on a GPU, with ncu
    python -m bench.gpu.row_counters ROWS.zip ORDER.json --launch         what ncu runs

ROWS.zip is what `bench.gpu.long_rows build` writes. Each kernel is launched once under the
profiler, after a warm-up, with the GPU's own clocks. Shares are of each unit's peak while an SM is
active; a stall is the number of cycles that a warp waits for a reason, for each instruction issued.
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.command_line import require_gpu, script_parser
from bench.gpu.flash_3 import FLASH_3
from bench.gpu.long_rows import DTYPE, OURS, row_shapes
from bench.gpu.runtime_calls import FLASH_4, environment, inputs, usable_peers
from bench.results import ROOT, Row, read_json, write_json

SECTIONS = ("SpeedOfLight", "ComputeWorkloadAnalysis", "SchedulerStats", "WarpStateStats")
PER_CENT = "avg.pct_of_peak_sustained_active"
METRICS = {
    "us": "gpu__time_duration.sum",
    "clock_hz": "sm__cycles_elapsed.avg.per_second",
    "special": f"sm__inst_executed_pipe_xu.{PER_CENT}",
    "fma": f"sm__inst_executed_pipe_fma.{PER_CENT}",
    "alu": f"sm__inst_executed_pipe_alu.{PER_CENT}",
    "issue": f"smsp__issue_active.{PER_CENT}",
}
STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+?)_per_issue_active\.ratio\Z")
PEERS = (FLASH_4, FLASH_3)
END_OF_CALL = "spin_kernel"
DEADLINE_S = 240


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("bundle", type=Path, metavar="ROWS.zip")
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument(
        "--only", nargs="*", default=[""], help="texts of which a workload contains one"
    )
    parser.add_argument("--launch", action="store_true")
    options = parser.parse_args()
    require_gpu()
    if options.launch:
        launch_each(options.bundle, options.out, options.only)
    else:
        write_json(options.out, counted(options.bundle, options.only))
    return 0


def counted(bundle: Path, only: list[str]) -> Row:
    """The counters of every launch, in the order in which the child made them."""
    with TemporaryDirectory() as folder:
        order, log = Path(folder) / "order.json", Path(folder) / "log.csv"
        child = [sys.executable, "-m", "bench.gpu.row_counters", str(bundle), str(order)]
        sections = [word for section in SECTIONS for word in ("--section", section)]
        # A metric that a GPU lacks reads n/a.
        metrics = ["--metrics", ",".join(METRICS.values())]
        clocks = ["--clock-control", "none", "--cache-control", "none"]
        output = ["--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)]
        what = ["--profile-from-start", "off", *sections, *metrics]
        process = subprocess.run(
            ["ncu", *output, *clocks, *what, *child, "--launch", "--only", *only],
            cwd=ROOT,
            check=False,
            timeout=DEADLINE_S,
        )
        if not order.exists():
            raise SystemExit(f"ncu ended with {process.returncode}:\n{log.read_text()[-2000:]}")
        launches = profiled(log.read_text())
        launched = read_json(order)
    if len(launches) != len(launched):
        raise SystemExit(f"{len(launched)} launches, and counters of {len(launches)}")
    rows = [{**row, **counters} for row, counters in zip(launched, launches, strict=True)]
    return {"environment": environment(), "rows": rows}


def launch_each(bundle: Path, order: Path, only: list[str]) -> None:
    import torch

    import greenfast

    kernels, launched = greenfast.load(bundle), []
    for shape in row_shapes():
        if not any(text in f"{shape.name},dtype={DTYPE}" for text in only):
            continue
        q, k, v = inputs(shape, DTYPE)
        others = usable_peers(shape, DTYPE, q, k, v, {})
        functions = {OURS: _ours(kernels, q, k, v, shape.mask)}
        functions |= {name: others[name] for name in PEERS if name in others}
        for name, function in functions.items():
            with torch.no_grad():
                function()
                torch.cuda.synchronize()
                torch.cuda.cudart().cudaProfilerStart()
                function()
                torch.cuda._sleep(1)  # a call may launch several kernels: this one is its end
                torch.cuda.synchronize()
                torch.cuda.cudart().cudaProfilerStop()
            launched.append({"workload": shape.name, "name": name})
    write_json(order, launched)


def _ours(kernels: Any, q: Any, k: Any, v: Any, mask: str) -> Any:
    return lambda: kernels(q, k, v, mask=mask)


def profiled(text: str) -> list[Row]:
    """The longest kernel of each call, from ncu's page `raw` as CSV."""
    table = list(csv.DictReader(line for line in text.splitlines() if line.startswith('"')))
    calls: list[list[Row]] = [[]]
    for launch in table:
        if not launch["ID"]:
            continue  # the line of units
        if END_OF_CALL in launch["Kernel Name"]:
            calls.append([])
        else:
            calls[-1].append(_counters(launch))
    return [max(launches, key=lambda launch: launch["us"]) for launches in calls if launches]


def _counters(launch: dict[str, str]) -> Row:
    values = {
        name: number for name, text in launch.items() if (number := _number(text)) is not None
    }
    stalls = {
        match.group(1): value for name, value in values.items() if (match := STALL.match(name))
    }
    waits = sorted(stalls.items(), key=lambda item: -item[1])
    return {
        "entry": launch["Kernel Name"].partition("(")[0],
        **{name: values[metric] for name, metric in METRICS.items() if metric in values},
        "us": values[METRICS["us"]] / 1000,
        "stalls": {name: value for name, value in waits if name != "selected"},
    }


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


if __name__ == "__main__":
    raise SystemExit(main())
