"""`greenfast trial`: one candidate through all gates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from greenfast.app.cli.files import require_folder, write_output
from greenfast.app.cli.options import (
    AsJson,
    Kernel,
    Output,
    ParameterValues,
    Preset,
    Seed,
    Target,
    Workloads,
)
from greenfast.app.cli.output import print_json
from greenfast.app.cli.trial_panel import JSON, show_trial
from greenfast.app.settings import Settings
from greenfast.app.views.designs import Design, Designs
from greenfast.app.views.next_steps import can_check, check_command


def trial(
    kernel: Kernel,
    template: Annotated[
        str | None,
        typer.Option(
            "--template", metavar="NAME", help="The template to render. [default: the baseline's]"
        ),
    ] = None,
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
    from greenfast.app.cli.trial_run import EXIT_CODES, TrialRequest, run_trial, trial_report
    from greenfast.app.wiring import Services

    require_folder(output)
    services = Services(Settings.from_environment())
    try:
        baseline = services.catalogue.kernel(kernel).baseline
        request = TrialRequest(
            kernel,
            template or baseline.partition(":")[0],
            preset,
            tuple(settings or ()),
            tuple(workload or ()),
            target,
            seed,
            not no_baseline,
        )
        result = run_trial(services, request)
        designs = Designs(services.catalogue, result.plan.kernel, result.plan.compiled)
    finally:
        services.close()
    report = trial_report(result)
    if output is not None and result.evaluated.source is not None:
        write_output(output, result.evaluated.source.text)
    if as_json:
        print_json(report)
    else:
        design = designs.of(report["template"], report["parameters"])
        title = f"{report['kernel']} {design} on {report['target']}"
        show_trial(report, title, further_commands(report, design))
    return EXIT_CODES[report["verdict"]]


def further_commands(report: JSON, design: Design) -> Iterator[str]:
    """Lines that name the commands which show why the candidate was rejected."""
    if report["probe"]:
        yield f"To find the stage that goes wrong: {report['probe']}"
    if can_check(report["verdict"], report["stage"]):
        changed = {name: value for name, value, _ in design.changes}
        workload, target = report["workloads"][0], report["target"]
        command = check_command(
            report["kernel"], report["template"], changed, workload, target, design.preset
        )
        yield f"To look for races, missing barriers and bad accesses by line: {command}"
