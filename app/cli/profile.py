"""`greenfast profile`: Nsight Compute's counters of a trial, or compute-sanitizer's opinion of it."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from greenfast.app.bundle import profile_driver
from greenfast.app.bundle.download import bundle, workload_description
from greenfast.app.bundle.opened import open_bundle
from greenfast.app.cli.lists import opened_services
from greenfast.app.cli.output import console, print_json, table
from greenfast.app.cli.trial import AsJson
from greenfast.app.wiring import Services
from greenfast.search.diagnose.profile import (
    KernelProfile,
    SanitizerFinding,
    ncu_command,
    parse_ncu,
    parse_sanitizer,
    require_tool,
    run_tool,
    sanitizer_command,
)
from greenfast.search.errors import UsageError
from greenfast.search.targets import check_target_name
from greenfast.search.text import visible

EXIT_CLEAN, EXIT_FINDINGS = 0, 1


class Sanitizer(StrEnum):
    MEMCHECK = "memcheck"
    RACECHECK = "racecheck"
    SYNCCHECK = "synccheck"
    INITCHECK = "initcheck"


def add_profile_commands(app: typer.Typer) -> None:
    app.command("profile")(profile)


def profile(
    search: Annotated[str, typer.Argument(metavar="SEARCH_ID")],
    trial: Annotated[
        int | None, typer.Argument(metavar="TRIAL", help="Its number; without one: the best.")
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="The best trial, as without TRIAL.")] = False,
    workload: Annotated[
        str | None, typer.Option("--workload", help="One of the search's; the first one.")
    ] = None,
    target: Annotated[str, typer.Option("--target", help="The GPU to use.")] = "cuda:0",
    sanitizer: Annotated[
        Sanitizer | None, typer.Option("--sanitizer", help="Look for defects instead of counting.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Counters of one right trial under Nsight Compute, on request. With --sanitizer exits 1 on findings."""
    if best and trial is not None:
        raise UsageError(
            "--best and a trial's number were given",
            code="bad_command_line",
            mend="name one of them",
        )
    family, _ = check_target_name(target)
    if family != "cuda":
        raise UsageError(
            f"{target} has no hardware counters", code="cannot_profile", mend="--target cuda:0"
        )
    require_tool("ncu" if sanitizer is None else "compute-sanitizer")
    with (
        opened_services() as services,
        tempfile.TemporaryDirectory(prefix="greenfast-profile-") as folder,
    ):
        launch = unpacked(services, search, trial, Path(folder))
        small = sanitizer is not None and not workload
        name = (
            with_smallest(services, launch, Path(folder)) if small else _workload(launch, workload)
        )
        log = Path(folder) / "tool.log"
        if sanitizer is None:
            entries = [one["entry"] for one in launch["launches"]]
            command = ncu_command(sys.executable, _driver(), Path(folder), log, entries, name)
        else:
            command = sanitizer_command(
                sanitizer.value, sys.executable, _driver(), Path(folder), log, name
            )
        last = run_tool(command, services.target(target))
        text = log.read_text("utf-8", "replace") if log.is_file() else last
        source = (Path(folder) / "kernel.cu").read_text("utf-8").splitlines()
    if sanitizer is None:
        show_profiles(parse_ncu(text or last), search, name, as_json)
        return EXIT_CLEAN
    findings = parse_sanitizer(text or last)
    show_findings(findings, sanitizer.value, source, as_json)
    return EXIT_FINDINGS if findings else EXIT_CLEAN


def _driver() -> Path:
    return Path(profile_driver.__file__)


def unpacked(services: Services, search: str, trial: int | None, folder: Path) -> dict[str, Any]:
    """The trial's bundle in `folder`; what its launch.json says."""
    packed = folder / "bundle.zip"
    packed.write_bytes(bundle(services, search, trial).content)
    opened = open_bundle(packed)
    for name, data in opened.files.items():
        (folder / name).write_bytes(data)
    return json.loads(json.dumps(opened.launch))


def with_smallest(services: Services, launch: dict[str, Any], folder: Path) -> str:
    """The kernel's smallest workload that runs the same cubin, put into the launch.json of `folder`: under
    compute-sanitizer every access costs a hundred times as much."""
    kernel = services.catalogue.kernel(launch["kernel"])
    compiled = kernel.workload(launch["workloads"][0]["name"]).compile_time(kernel)
    found = [
        workload_description(
            kernel, kernel.template(launch["template"]), workload, launch["parameters"]
        )
        for workload in kernel.workloads
        if workload.compile_time(kernel) == compiled
    ]
    smallest = min(found, key=lambda one: one["flop"])
    (folder / "launch.json").write_text(json.dumps({**launch, "workloads": [smallest]}))
    return smallest["name"]


def _workload(launch: dict[str, Any], wanted: str | None) -> str:
    names = [workload["name"] for workload in launch["workloads"]]
    if wanted is not None and wanted not in names:
        raise UsageError(
            f"the search has no workload {wanted!r}",
            code="unknown_workload",
            mend="known: " + ", ".join(names),
        )
    return wanted or names[0]


def show_profiles(
    profiles: tuple[KernelProfile, ...], search: str, workload: str, as_json: bool
) -> None:
    if as_json:
        print_json(
            {"search": search, "workload": workload, "launches": [asdict(one) for one in profiles]}
        )
        return
    for one in profiles:
        values = asdict(one)
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
            for reason, cycles in one.stalls
        ]
        console().print(
            table(("", ""), rows, title=f"{one.entry} on {workload}, under Nsight Compute")
        )
    print(
        "\nThe duration is the profiler's, of one replayed launch; a trial's time is measured in blocks, against its "
        "baseline."
    )


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def show_findings(
    findings: tuple[SanitizerFinding, ...], tool: str, source: list[str], as_json: bool
) -> None:
    if as_json:
        print_json(
            {
                "tool": tool,
                "clean": not findings,
                "findings": [asdict(finding) for finding in findings],
            }
        )
        return
    for number, one in enumerate(findings, 1):
        print(visible(f"{number}. {one.kind}: {one.sentence}"))
        for line in dict.fromkeys((one.source_line, one.other_source_line)):
            if line is not None and 0 < line <= len(source):
                print(visible(f"   kernel.cu:{line} | {source[line - 1]}"))
    print(f"{tool}: {len(findings)} findings" if findings else f"{tool}: nothing found")
