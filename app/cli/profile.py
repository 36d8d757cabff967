"""`greenfast profile`: a trial under Nsight Compute or compute-sanitizer."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from greenfast.app.bundle import profile_driver
from greenfast.app.bundle.opened import open_bundle
from greenfast.app.cli.options import AsJson, SearchId
from greenfast.app.cli.output import console, print_json, table
from greenfast.app.cli.services import opened_services
from greenfast.app.views.trial_names import search_named
from greenfast.search.devices.facts import Device
from greenfast.search.errors import UsageError
from greenfast.search.targets import check_target_name, require_one_device
from greenfast.search.text import visible

if TYPE_CHECKING:
    from greenfast.app.wiring import Services
    from greenfast.search.diagnose.profile import KernelProfile, SanitizerFinding

EXIT_CLEAN, EXIT_FINDINGS = 0, 1


class Sanitizer(StrEnum):
    MEMCHECK = "memcheck"
    RACECHECK = "racecheck"
    SYNCCHECK = "synccheck"
    INITCHECK = "initcheck"


TrialArgument = Annotated[
    int | None,
    typer.Argument(metavar="TRIAL", help="The number of a trial. [default: the best]"),
]
BestOption = Annotated[
    bool, typer.Option("--best", help="Use the best trial, which is the default.")
]
WorkloadOption = Annotated[
    str | None,
    typer.Option(
        "--workload",
        metavar="NAME",
        help="One of the search's workloads. [default: the first; with --sanitizer the "
        "kernel's smallest]",
    ),
]
TargetOption = Annotated[str, typer.Option("--target", metavar="TARGET", help="The GPU to use.")]
SanitizerOption = Annotated[
    Sanitizer | None,
    typer.Option("--sanitizer", help="Run this tool of compute-sanitizer instead of counting."),
]


def profile(
    search: SearchId,
    trial: TrialArgument = None,
    best: BestOption = False,
    workload: WorkloadOption = None,
    target: TargetOption = "cuda:0",
    sanitizer: SanitizerOption = None,
    as_json: AsJson = False,
) -> int:
    """Run a correct trial under Nsight Compute and print its hardware counters.

    With --sanitizer, run it under compute-sanitizer instead, and print the reported defects.
    Both need a GPU and the CUDA toolkit.

    Exit codes: 0 done, 1 compute-sanitizer reports defects.
    """
    from greenfast.search.diagnose.profile import (
        ncu_command,
        parse_ncu,
        parse_sanitizer,
        require_tool,
        run_tool,
        sanitizer_command,
    )
    from greenfast.search.targets.cuda.target import CudaTarget

    _check_request(trial, best, target)
    require_tool("ncu" if sanitizer is None else "compute-sanitizer")
    with (
        opened_services() as services,
        tempfile.TemporaryDirectory(prefix="greenfast-profile-") as folder,
    ):
        gpu = services.target(target)
        assert isinstance(gpu, CudaTarget)
        search = search_named(services.store, search)
        launch = unpacked(services, search, trial, Path(folder))
        small = sanitizer is not None and not workload
        name = (
            with_smallest(services, launch, Path(folder), gpu.device)
            if small
            else _workload(launch, workload)
        )
        log = Path(folder) / "tool.log"
        if sanitizer is None:
            entries = [description["entry"] for description in launch["launches"]]
            command = ncu_command(sys.executable, _driver(), Path(folder), log, entries, name)
        else:
            command = sanitizer_command(
                sanitizer.value, sys.executable, _driver(), Path(folder), log, name
            )
        printed = run_tool(command, gpu)
        text = log.read_text("utf-8", "replace") if log.is_file() else printed
        source = (Path(folder) / "kernel.cu").read_text("utf-8").splitlines()
    if sanitizer is None:
        show_profiles(parse_ncu(text or printed), search, name, as_json)
        return EXIT_CLEAN
    findings = parse_sanitizer(text or printed)
    show_findings(findings, sanitizer.value, source, as_json)
    return EXIT_FINDINGS if findings else EXIT_CLEAN


def _check_request(trial: int | None, best: bool, target: str) -> None:
    """UsageError unless the command names one trial and one GPU."""
    if best and trial is not None:
        raise UsageError(
            "both --best and the number of a trial are given",
            code="bad_command_line",
            mend="name one of them",
        )
    family, _ = check_target_name(target)
    if family != "cuda":
        raise UsageError(
            f"{target} has no hardware counters", code="cannot_profile", mend="use --target cuda:0"
        )
    require_one_device(target, "greenfast profile")


def _driver() -> Path:
    return Path(profile_driver.__file__)


def unpacked(services: Services, search: str, trial: int | None, folder: Path) -> dict[str, Any]:
    """Unpack the trial's bundle into `folder`; returns the content of its launch.json."""
    from greenfast.app.bundle.download import bundle

    packed = folder / "bundle.zip"
    packed.write_bytes(bundle(services, search, trial).content)
    opened = open_bundle(packed)
    for name, data in opened.files.items():
        (folder / name).write_bytes(data)
    launch: dict[str, Any] = json.loads(json.dumps(opened.launch))
    return launch


def with_smallest(services: Services, launch: dict[str, Any], folder: Path, device: Device) -> str:
    """Put the kernel's smallest workload that runs the same cubin into launch.json of `folder`.

    Under compute-sanitizer an access takes a hundred times as long. Returns the workload's name.
    """
    from greenfast.app.bundle.download import workload_description

    kernel = services.catalogue.kernel(launch["kernel"])
    compiled = kernel.workload(launch["workloads"][0]["name"]).compile_time(kernel)
    descriptions = [
        workload_description(
            kernel, kernel.template(launch["template"]), workload, launch["parameters"], device
        )
        for workload in kernel.workloads
        if workload.compile_time(kernel) == compiled
    ]
    smallest = min(descriptions, key=lambda description: float(description["flop"]))
    (folder / "launch.json").write_text(json.dumps({**launch, "workloads": [smallest]}))
    return str(smallest["name"])


def _workload(launch: dict[str, Any], requested: str | None) -> str:
    names = [str(workload["name"]) for workload in launch["workloads"]]
    if requested is not None and requested not in names:
        raise UsageError(
            f"the search has no workload {requested!r}",
            code="unknown_workload",
            mend="known: " + ", ".join(names),
        )
    return requested or names[0]


def show_profiles(
    profiles: tuple[KernelProfile, ...], search: str, workload: str, as_json: bool
) -> None:
    """Print a table of counters for each launch."""
    if as_json:
        print_json(
            {
                "search": search,
                "workload": workload,
                "launches": [asdict(counters) for counters in profiles],
            }
        )
        return
    for counters in profiles:
        values = asdict(counters)
        rows = [
            (
                name.replace("_percent", ", %").replace("_us", ", us").replace("_", " "),
                _figure(value),
            )
            for name, value in values.items()
            if name not in ("entry", "stalls")
        ]
        rows += [
            (f"stalled: {reason.replace('_', ' ')}", f"{cycles:.2f} cycles an instruction")
            for reason, cycles in counters.stalls
        ]
        console().print(
            table(("", ""), rows, title=f"{counters.entry} on {workload}, under Nsight Compute")
        )
    print(
        "\nThe duration is the profiler's, for one replayed launch. A trial's time is measured "
        "differently: in blocks that alternate with its baseline."
    )


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def show_findings(
    findings: tuple[SanitizerFinding, ...], tool: str, source: list[str], as_json: bool
) -> None:
    """Print each finding with its lines of kernel.cu."""
    if as_json:
        print_json(
            {
                "tool": tool,
                "clean": not findings,
                "findings": [asdict(finding) for finding in findings],
            }
        )
        return
    for number, finding in enumerate(findings, 1):
        print(visible(f"{number}. {finding.kind}: {finding.sentence}"))
        for line in dict.fromkeys((finding.source_line, finding.other_source_line)):
            if line is not None and 0 < line <= len(source):
                print(visible(f"   kernel.cu:{line} | {source[line - 1]}"))
    plural = "" if len(findings) == 1 else "s"
    print(f"{tool}: {len(findings)} finding{plural}" if findings else f"{tool}: no findings")
