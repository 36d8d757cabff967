"""Runs NVIDIA's tools on one bundle, for a second opinion.

Nsight Compute's counters and compute-sanitizer's findings. Parsers are pure. Sources: Nsight
Compute CLI documentation (page raw, CSV), Compute Sanitizer documentation.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.children import child_environment, kill_group
from greenfast.search.errors import Fault, UsageError
from greenfast.search.targets.cuda import gpu_count
from greenfast.search.targets.cuda.target import CudaTarget
from greenfast.search.text import last_line, shortened

TOOL_DEADLINE_S = 300.0
TOP_STALLS = 3
# Sections rather than metrics: a metric that the GPU lacks is an error, a section never is.
SECTIONS = (
    "SpeedOfLight",
    "LaunchStats",
    "Occupancy",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Tables",
    "SchedulerStats",
    "WarpStateStats",
)
TIME_UNITS_US = {
    "ns": 1e-3,
    "nsecond": 1e-3,
    "us": 1.0,
    "usecond": 1.0,
    "ms": 1e3,
    "msecond": 1e3,
    "s": 1e6,
    "second": 1e6,
}
# Field -> its metrics. The first that is present counts: names differ between GPU generations.
METRICS = {
    "duration_us": ("gpu__time_duration.sum",),
    "sm_throughput_percent": ("sm__throughput.avg.pct_of_peak_sustained_elapsed",),
    "dram_throughput_percent": (
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "occupancy_percent": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
    "registers": ("launch__registers_per_thread",),
    "l2_hit_percent": ("lts__t_sector_hit_rate.pct",),
    "tensor_pipe_percent": (
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active",
    ),
    "issue_slots_percent": (
        "smsp__issue_active.avg.pct_of_peak_sustained_active",
        "sm__inst_issued.avg.pct_of_peak_sustained_active",
    ),
}
CONFLICTS = (
    ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",),
    (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    ),
)
_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+?)_per_issue_active\.ratio\Z")
_NO_STALLS = ("selected",)


@dataclass(frozen=True)
class KernelProfile:
    """One launch under Nsight Compute; None if the GPU has no such counter."""

    entry: str
    duration_us: float | None
    sm_throughput_percent: float | None
    dram_throughput_percent: float | None
    occupancy_percent: float | None  # achieved: active warps / the most that fit an SM
    registers: float | None
    shared_bank_conflicts: float | None
    l2_hit_percent: float | None
    tensor_pipe_percent: float | None
    issue_slots_percent: float | None
    stalls: tuple[
        tuple[str, float], ...
    ]  # the largest reasons for waiting, in cycles per issued instruction


@dataclass(frozen=True)
class SanitizerFinding:
    """One report of compute-sanitizer, with lines of kernel.cu where it names them."""

    kind: str
    sentence: str
    entry: str
    source_line: int | None
    other_source_line: int | None = None


# ---- Nsight Compute ----


def ncu_command(
    python: str, driver_file: Path, folder: Path, log: Path, entries: Sequence[str], workload: str
) -> list[str]:
    """One pass of the workload under the profiler, with the kernel's own clocks and caches."""
    sections = [word for section in SECTIONS for word in ("--section", section)]
    names = "|".join(re.escape(fromkey) for fromkey in dict.fromkeys(entries))
    return [
        "ncu",
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
        "--log-file",
        str(log),
        "--clock-control",
        "none",
        "--cache-control",
        "none",
        "--kernel-name",
        f"regex:^({names})$",
        "--launch-skip",
        str(len(entries)),
        "--launch-count",
        str(len(entries)),
        *sections,
        python,
        str(driver_file),
        str(folder),
        "2",
        workload,
    ]


def parse_ncu(text: str) -> tuple[KernelProfile, ...]:
    """Every launch in a log of `ncu --csv --page raw`; UsageError if it has none."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise _no_profile(text)
    rows = list(csv.DictReader(line for line in lines[start:] if line.startswith('"')))
    units, launches = {}, rows
    if rows and not rows[0]["ID"]:
        units, launches = rows[0], rows[1:]
    if not launches:
        raise _no_profile(text)
    return tuple(_kernel(launch, units) for launch in launches)


def _kernel(row: dict[str, str], units: dict[str, str]) -> KernelProfile:
    values = {name: number for name, text in row.items() if (number := _number(text)) is not None}
    measured = {
        name: next((values[metric] for metric in metrics if metric in values), None)
        for name, metrics in METRICS.items()
    }
    if measured["duration_us"] is not None:
        measured["duration_us"] *= TIME_UNITS_US.get(
            units.get("gpu__time_duration.sum", "ns"), 1e-3
        )
    conflicts = next(
        (
            sum(values[name] for name in names)
            for names in CONFLICTS
            if all(name in values for name in names)
        ),
        None,
    )
    stalls = sorted(
        (
            (match.group(1), value)
            for name, value in values.items()
            if (match := _STALL.match(name)) and match.group(1) not in _NO_STALLS
        ),
        key=lambda item: -item[1],
    )
    return KernelProfile(
        entry=row.get("Kernel Name", "").partition("(")[0],
        shared_bank_conflicts=conflicts,
        stalls=tuple(stalls[:TOP_STALLS]),
        **measured,
    )


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def _no_profile(text: str) -> UsageError:
    """The error for a log without launches."""
    if "ERR_NVGPUCTRPERM" in text:
        return UsageError(
            "the driver does not let this user read performance counters",
            code="counters_not_permitted",
            mend="run as root, or load the nvidia module with "
            "NVreg_RestrictProfilingToAdminUsers=0; "
            "in a container add --cap-add=SYS_ADMIN",
        )
    if "not supported" in text:
        return UsageError(
            "Nsight Compute does not support this GPU or driver",
            code="profiling_unsupported",
            mend="install a newer Nsight Compute; `ncu --version` shows which one is installed",
        )
    errors = [
        line.partition("==ERROR==")[2].strip() for line in text.splitlines() if "==ERROR==" in line
    ]
    why = shortened(errors[0]) if errors else "no launch was profiled"
    return UsageError(f"Nsight Compute gave no counters: {why}", code="nothing_profiled")


# ---- compute-sanitizer ----


def sanitizer_command(
    tool: str, python: str, driver_file: Path, folder: Path, log: Path, workload: str
) -> list[str]:
    return [
        "compute-sanitizer",
        "--tool",
        tool,
        "--log-file",
        str(log),
        "--show-backtrace",
        "no",
        "--print-limit",
        "100",
        python,
        str(driver_file),
        str(folder),
        "1",
        workload,
    ]


# `kernel(float *)+0x70 in /tmp/x.cu:12`; an extern "C" entry may come without its signature.
_PLACE = re.compile(
    r"\bat\s+(?:void\s+)?(?P<entry>\w+)(?:\(.*\))?\+0x[0-9a-fA-F]+(?:\s+in\s+\S+?:(?P<line>\d+))?"
)
_SUMMARY = re.compile(r"^(?:ERROR|RACECHECK|SYNCCHECK|INITCHECK|MEMCHECK|LEAK) SUMMARY", re.I)
_HEADS = (
    "Invalid ",
    "Misaligned ",
    "Uninitialized ",
    "Barrier error",
    "Error: ",
    "Warning: ",
    "Program hit ",
    "Race reported",
    "Potential ",
    "Unused ",
    "Stack ",
    "Fatal ",
    "Malloc/Free error",
    "Mismatched ",
    "Missing ",
    "Async",
)


def parse_sanitizer(text: str) -> tuple[SanitizerFinding, ...]:
    """Every report in a log; () when its summary counts none.

    UsageError when the tool did not finish.
    """
    body = [
        line.partition("========= ")[2].rstrip() if "=========" in line else None
        for line in text.splitlines()
    ]
    if not any(line and _SUMMARY.match(line) for line in body):
        problem = next((line for line in body if line and "rror" in line), "its log has no summary")
        raise UsageError(
            f"compute-sanitizer did not finish: {shortened(problem)}",
            code="sanitizer_failed",
        )
    return tuple(_finding(report) for report in _reports(body))


def _reports(body: Iterable[str | None]) -> Iterator[list[str]]:
    """The lines of each report: a head at the margin and the indented lines below it."""
    report: list[str] = []
    for line in body:
        indented = line is not None and line.startswith("    ")
        if report and not indented:
            yield report
            report = []
        if line is not None and not indented and line.startswith(_HEADS):
            report = [line]
        elif line is not None and report and indented:
            report.append(line.strip())
    if report:
        yield report


def _finding(report: list[str]) -> SanitizerFinding:
    places = [match for line in report if (match := _PLACE.search(line))]
    lines = [int(place["line"]) if place["line"] else None for place in places]
    head = re.sub(r"^(?:Error|Warning): ", "", report[0])
    by = next((line for line in report[1:] if line.startswith("by thread")), "")
    kind = (
        "race"
        if "Race" in head
        else "uninitialised"
        if head.startswith("Uninitialized")
        else "misaligned"
        if "isaligned" in " ".join(report)
        else "divergence"
        if head.startswith("Barrier")
        else "out_of_bounds"
        if head.startswith("Invalid")
        else "error"
    )
    sentence = " ".join(filter(None, (re.sub(r"\s+at .*$", "", head), by)))
    return SanitizerFinding(
        kind,
        shortened(sentence),
        places[0]["entry"] if places else "",
        lines[0] if lines else None,
        lines[1] if len(lines) > 1 else None,
    )


# ---- running the tools ----


def require_tool(name: str) -> None:
    """UsageError when the tool or a GPU is missing."""
    if not gpu_count():
        raise UsageError(
            f"{name} needs a CUDA device, and none is visible on this machine", code="no_gpu"
        )
    if shutil.which(name) is None:
        raise UsageError(
            f"{name} is not on PATH",
            code="profiler_missing",
            mend="install the CUDA toolkit, or add its bin folder to PATH",
        )


def run_tool(command: Sequence[str], target: CudaTarget) -> str:
    """Run a tool to its end, alone on the GPU; returns the last line of its output."""
    environment = child_environment(
        {"CUDA_VISIBLE_DEVICES": str(target.number), "HOME": os.path.expanduser("~")}
    )
    with target.alone():
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            text=True,
        )
        try:
            output, _ = process.communicate(timeout=TOOL_DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise Fault(
                f"{command[0]} did not end within {TOOL_DEADLINE_S:g} s", code="tool_stuck"
            ) from None
        finally:
            kill_group(process)
    return last_line(output)
