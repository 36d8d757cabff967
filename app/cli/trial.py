"""`greenfast trial`: one candidate through all gates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.panel import Panel

from greenfast.app.cli.output import (
    console,
    duration,
    microseconds,
    print_json,
    ratio_in_band,
    styled,
    table,
    text,
    visible,
)
from greenfast.app.cli.trial_run import EXIT_CODES, JSON, TrialRequest, run_trial, trial_report
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services
from greenfast.search.errors import UsageError
from greenfast.search.toolchain.cache import write_atomically

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON value on stdout and nothing else.")
]
Kernel = Annotated[
    str, typer.Argument(help="Name of a kernel, as `greenfast templates` lists them.")
]
Target = Annotated[
    str | None, typer.Option("--target", help="Where candidates run; see `greenfast targets`.")
]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of inputs and choices.")]
Workloads = Annotated[
    list[str] | None, typer.Option("--workload", help="A workload by name; may be repeated.")
]
MOST_LIMITS = 3  # the limiting resource and the next two
Output = Annotated[Path | None, typer.Option("--output", "-o", help="File to write.")]


def add_trial_commands(app: typer.Typer) -> None:
    app.command("trial")(trial)


def trial(
    kernel: Kernel,
    template: Annotated[str, typer.Option("--template", help="Template to render.")],
    preset: Annotated[str | None, typer.Option("--preset", help="Start from this preset.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change one parameter.")
    ] = None,
    workload: Workloads = None,
    target: Target = None,
    seed: Seed = None,
    no_baseline: Annotated[
        bool, typer.Option("--no-baseline", help="Compare with nothing.")
    ] = False,
    output: Output = None,
    as_json: AsJson = False,
) -> int:
    """Take one candidate through all gates. Exits 0 when it is right, 1 when it is rejected, 3 on a fault of ours."""
    require_folder(output)
    services = Services(Settings.from_environment())
    try:
        request = TrialRequest(
            kernel,
            template,
            preset,
            tuple(settings or ()),
            tuple(workload or ()),
            target,
            seed,
            not no_baseline,
        )
        result = run_trial(services, request)
    finally:
        services.close()
    report = trial_report(result)
    if output is not None and result.done.source is not None:
        write_text(output, result.done.source.text)
    print_json(report) if as_json else show_trial(report)
    return EXIT_CODES[report["verdict"]]


def require_folder(path: Path | None) -> None:
    """Refuse a file that cannot be written before anything is worked out for it."""
    if path is not None and not path.parent.is_dir():
        raise UsageError(
            f"{path} cannot be written: there is no such folder",
            code="unwritable_output",
            mend="choose another file with -o",
        )


def write_text(path: Path, content: str | bytes) -> None:
    """Write a file that the caller named, whole or not at all; UsageError when that is not possible."""
    require_folder(path)
    try:
        write_atomically(path, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}",
            code="unwritable_output",
            mend="choose another file with -o",
        ) from error


def show_trial(report: JSON) -> None:
    """A panel for a person: gates, figures, the sentence."""
    name = report["template"] + (f":{report['preset']}" if report["preset"] else "")
    gates = table(
        ("gate", "outcome", ""),
        [(one, styled(data["outcome"]), data["sentence"]) for one, data in report["gates"].items()],
    )
    lines = [text(report["sentence"]), text(""), gates, text(""), _figures(report)]
    for timing in report["gates"]["performance"].get("timings", ()):
        lines += [text(""), *_modelled(timing)] if timing["limits"] else []
    if report["probe"]:
        lines += [text(""), text(f"at which stage it goes wrong: {report['probe']}")]
    if report["log"]:
        lines += [text(""), text(report["log"])]
    out = console()
    out.print(
        Panel(
            Group(*lines),
            title=text(f" {report['kernel']} {name} on {report['target']} "),
            subtitle=styled(report["verdict"]),
            title_align="left",
            subtitle_align="right",
        )
    )


def _figures(report: JSON):
    ptxas, correctness, performance = (
        report["gates"][name] for name in ("ptxas", "correctness", "performance")
    )
    rows = [
        ("verdict", styled(report["verdict"])),
        ("stage", report["stage"]),
        ("reason", report["reason"]),
        ("time", microseconds(report["time_median_us"], report["time_kind"], report["time_mode"])),
        (
            "ratio to baseline",
            ratio_in_band(
                report["ratio_to_baseline"], report["time_kind"], performance.get("band")
            ),
        ),
        ("registers", ptxas.get("registers")),
        ("spill bytes", ptxas.get("spill_bytes")),
        ("shared memory", _smem(ptxas)),
        ("largest absolute error", _three_digits(correctness.get("max_abs_error"))),
        ("source", report["source_digest"]),
        ("took", duration(report["duration_s"])),
    ]
    made = table(("", ""), [row for row in rows if row[1] not in (None, "-")])
    made.show_header = False
    return made


def _modelled(timing: JSON) -> list:
    """What a modelled time goes into, and what the warps issue."""
    first = list(timing["limits"].items())[:MOST_LIMITS]
    limits = table(
        (timing["workload"], "alone"),
        [(name, microseconds(us, timing["time_kind"])) for name, us in first],
    )
    issued = sum(timing["mix"].values())
    mix = ", ".join(
        f"{count / issued:.0%} {name}"
        for name, count in timing["mix"].items()
        if count >= 0.005 * issued
    )
    said = f"{issued:,.0f} warp instructions: {mix}" if issued else ""
    return [text(f"limited by {listed([name for name, _ in first])}"), limits, text(said)]


def listed(limits: Sequence[str]) -> str:
    """`latency, then shared memory and integer`."""
    first, *rest = limits
    return f"{first}, then {' and '.join(rest)}" if rest else first


def _three_digits(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"


def _smem(ptxas: JSON) -> str | None:
    if "smem_static_bytes" not in ptxas:
        return None
    return visible(
        f"{ptxas['smem_static_bytes']} static + {ptxas['smem_dynamic_bytes']} dynamic bytes"
    )
