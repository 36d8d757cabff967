"""`greenfast probe`: the stage at which a candidate goes wrong, and where in it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from greenfast.app.cli.options import (
    AsJson,
    Kernel,
    ParameterValues,
    Preset,
    Seed,
    Target,
    Template,
    Workloads,
)
from greenfast.app.cli.output import console, print_json, styled, table
from greenfast.app.settings import Settings
from greenfast.search.errors import UsageError
from greenfast.search.text import visible

if TYPE_CHECKING:
    from greenfast.app.cli.trial_run import TrialRequest
    from greenfast.app.wiring import Services
    from greenfast.search.diagnose.probes import ProbedCase, ProbeReport

EXIT_CORRECT, EXIT_WRONG = 0, 1


def probe(
    kernel: Kernel,
    template: Template,
    preset: Preset = None,
    settings: ParameterValues = None,
    case: Annotated[
        list[str] | None,
        typer.Option(
            "--case",
            metavar="CHECK",
            help="Run only this check, on all its seeds; may be repeated. [default: all checks]",
        ),
    ] = None,
    workload: Workloads = None,
    target: Target = None,
    seed: Seed = None,
    as_json: AsJson = False,
) -> int:
    """Compare each stage of a candidate with a reference of that stage.

    A stage is an intermediate result, such as the scores before the softmax. The first wrong stage
    shows where a kernel with wrong outputs goes wrong. `greenfast docs probes` explains how to
    add stages to a kernel.

    Exit codes: 0 all stages are correct, 1 one is wrong.
    """
    from greenfast.app.cli.trial_run import TrialRequest
    from greenfast.app.wiring import Services
    from greenfast.search.diagnose.probes import first_wrong

    services = Services(Settings.from_environment())
    try:
        request = TrialRequest(
            kernel, template, preset, tuple(settings or ()), tuple(workload or ()), target, seed
        )
        subject, where, reports = probe_requested(services, request, tuple(case or ()))
    finally:
        services.close()
    first = first_wrong(reports)
    if as_json:
        print_json(
            {
                "what": subject,
                "target": where,
                "first_wrong": first.probe if first else None,
                "stages": [asdict(report) for report in reports],
            }
        )
    else:
        show_reports(f"{subject} on {where}", reports)
    return EXIT_WRONG if first else EXIT_CORRECT


def probe_requested(
    services: Services, request: TrialRequest, cases: tuple[str, ...]
) -> tuple[str, str, tuple[ProbeReport, ...]]:
    """(candidate, target, a report for each stage).

    UsageError `no_probes` for a kernel without stages, `cannot_probe` on a recording.
    """
    from greenfast.app.cli.trial_run import requested_candidate, requested_plan
    from greenfast.search.diagnose.probes import probe_candidate

    kernel = services.catalogue.kernel(request.kernel)
    template = kernel.template(request.template)
    if not kernel.probes:
        raise UsageError(
            f"kernel {kernel.name} has no probes",
            code="no_probes",
            mend="`greenfast docs probes` explains how to add them",
        )
    plan = requested_plan(services, request)
    if plan.target.startswith("replay:"):
        raise UsageError(
            f"{plan.target} runs nothing, so there is nothing to probe",
            code="cannot_probe",
            mend="use --target emulator:h200",
        )
    context = services.context(plan)
    candidate = requested_candidate(context, template, request)
    preset = f":{request.preset}" if request.preset else ""
    settings = "".join(f" {setting}" for setting in request.settings)
    subject = f"{kernel.name} {template.name}{preset}{settings}"
    return subject, plan.target, probe_candidate(context, candidate, cases)


def show_reports(title: str, reports: tuple[ProbeReport, ...]) -> None:
    """Print a line a stage, then the first wrong one with its worst elements and suspects."""
    from greenfast.search.diagnose.probes import first_wrong

    rows = [(report.probe, styled(report.outcome), report.sentence) for report in reports]
    console().print(table(("stage", "outcome", ""), rows, title=title))
    first = first_wrong(reports)
    print()
    if first is None:
        missing = ", ".join(report.probe for report in reports if report.outcome == "missing")
        left_out = f" (not probed in this template: {missing})" if missing else ""
        print(visible(f"every stage is correct{left_out}"))
        return
    print(visible(f"first wrong stage: {first.probe}: {first.sentence}"))
    for case in first.cases:
        if case.wrong:
            print(visible(_worst(case)))
    if first.outcome == "wrong":
        print(visible(f"bound: {first.bound}"))
    if first.suspect:
        print(visible(f"look at: {first.suspect}"))


def _worst(case: ProbedCase) -> str:
    bound = f" within {case.worst_bound}" if case.worst_bound else ""
    return (
        f"  {case.case} ({case.shape}, seed {case.seed}, {case.order} order): {case.where}; worst "
        f"at {list(case.worst_index)}: {case.worst_value}, expected {case.worst_expected}{bound}"
    )
