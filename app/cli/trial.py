"""`greenfast trial`: one candidate through all gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from greenfast.app.cli.files import require_folder, write_output
from greenfast.app.cli.options import (
    AsJson,
    Kernel,
    Output,
    ParameterValues,
    Preset,
    Seed,
    Target,
    Template,
    Workloads,
)
from greenfast.app.cli.output import (
    console,
    duration,
    microseconds,
    print_json,
    ratio_in_band,
    styled,
    table,
    text,
)
from greenfast.app.cli.trial_run import EXIT_CODES, JSON, TrialRequest, run_trial, trial_report
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services

MOST_LIMITS = 3  # the limiting resource and the next two
LEAST_SHARE = 0.005  # of the issued instructions, for a class to be named


def trial(
    kernel: Kernel,
    template: Template,
    preset: Preset = None,
    settings: ParameterValues = None,
    workload: Workloads = None,
    target: Target = None,
    seed: Seed = None,
    no_baseline: Annotated[
        bool,
        typer.Option("--no-baseline", help="Do not compare the candidate with the baseline."),
    ] = False,
    output: Output = None,
    as_json: AsJson = False,
) -> int:
    """Take one candidate through all gates: ptxas, correctness, performance, safety.

    --output receives the candidate's CUDA source. On an emulator the time is modelled, not
    measured.

    Exit codes: 0 the candidate is correct, 1 it is rejected, 3 a fault of greenfast or of the
    machine prevented a verdict.
    """
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
    if output is not None and result.evaluated.source is not None:
        write_output(output, result.evaluated.source.text)
    if as_json:
        print_json(report)
    else:
        show_trial(report)
    return EXIT_CODES[report["verdict"]]


def show_trial(report: JSON) -> None:
    """Print a panel with the sentence, the gates, and the figures."""
    name = report["template"] + (f":{report['preset']}" if report["preset"] else "")
    gates = table(
        ("gate", "outcome", ""),
        [
            (gate, styled(result["outcome"]), result["sentence"])
            for gate, result in report["gates"].items()
        ],
    )
    lines: list[RenderableType] = [
        text(report["sentence"]),
        text(""),
        gates,
        text(""),
        _figures(report),
    ]
    for timing in report["gates"]["performance"].get("timings", ()):
        lines += [text(""), *_modelled(timing)] if timing["limits"] else []
    if report["probe"]:
        lines += [text(""), text(f"To find the stage that goes wrong: {report['probe']}")]
    if report["log"]:
        lines += [text(""), text(report["log"])]
    console().print(
        Panel(
            Group(*lines),
            title=text(f" {report['kernel']} {name} on {report['target']} "),
            subtitle=styled(report["verdict"]),
            title_align="left",
            subtitle_align="right",
        )
    )


def _figures(report: JSON) -> Table:
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
        ("spills", _bytes(ptxas.get("spill_bytes"))),
        ("shared memory", _shared_memory(ptxas)),
        ("assembler", _notes(ptxas)),
        ("largest absolute error", _three_digits(correctness.get("max_abs_error"))),
        ("source", report["source_digest"]),
        ("took", duration(report["duration_s"])),
    ]
    figures = table(("", ""), [row for row in rows if row[1] not in (None, "-")])
    figures.show_header = False
    return figures


def _modelled(timing: JSON) -> list[Text | Table]:
    """The resources that a modelled time goes into, and the instructions that the warps issue."""
    longest = list(timing["limits"].items())[:MOST_LIMITS]
    limits = table(
        (timing["workload"], "alone"),
        [(name, microseconds(us, timing["time_kind"])) for name, us in longest],
    )
    issued = sum(timing["mix"].values())
    mix = ", ".join(
        f"{count / issued:.0%} {name}"
        for name, count in timing["mix"].items()
        if count >= LEAST_SHARE * issued
    )
    return [
        text(f"limited by {listed([name for name, _ in longest])}"),
        limits,
        text(f"{issued:,.0f} warp instructions: {mix}" if issued else ""),
    ]


def listed(limits: Sequence[str]) -> str:
    """`latency, then shared memory and integer`."""
    first, *rest = limits
    return f"{first}, then {' and '.join(rest)}" if rest else first


def _three_digits(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"


def _bytes(value: int | None) -> str | None:
    return None if value is None else f"{value} bytes"


def _notes(ptxas: JSON) -> str | None:
    """The assembler's remarks on products and register budgets."""
    return (
        "\n".join(f"{note['code']}: {note['sentence']}" for note in ptxas.get("notes", ())) or None
    )


def _shared_memory(ptxas: JSON) -> str | None:
    if "smem_static_bytes" not in ptxas:
        return None
    return f"{ptxas['smem_static_bytes']} static + {ptxas['smem_dynamic_bytes']} dynamic bytes"
