"""`greenfast probe`: at which stage a candidate goes wrong, and where in it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from greenfast.app.cli.output import console, print_json, styled, table
from greenfast.app.cli.trial import AsJson, Kernel, Seed, Target, Workloads
from greenfast.app.cli.trial_run import TrialRequest, requested_candidate
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services
from greenfast.search.diagnose.probes import ProbedCase, ProbeReport, first_wrong, probe_candidate
from greenfast.search.errors import UsageError
from greenfast.search.loop.plan import NO_BASELINE, SearchRequest
from greenfast.search.text import visible

EXIT_RIGHT, EXIT_WRONG = 0, 1


def add_probe_commands(app: typer.Typer) -> None:
    app.command("probe")(probe)


def probe(
    kernel: Kernel,
    template: Annotated[str, typer.Option("--template", help="Template to render.")],
    preset: Annotated[str | None, typer.Option("--preset", help="Start from this preset.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change one parameter.")
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option("--case", help="A check by name, all its seeds; may be repeated."),
    ] = None,
    workload: Workloads = None,
    target: Target = None,
    seed: Seed = None,
    as_json: AsJson = False,
) -> int:
    """Show each stage of a candidate beside its reference. Exits 0 when all are right, 1 when one is wrong."""
    services = Services(Settings.from_environment())
    try:
        request = TrialRequest(
            kernel, template, preset, tuple(settings or ()), tuple(workload or ()), target, seed
        )
        what, on, reports = probe_requested(services, request, tuple(case or ()))
    finally:
        services.close()
    found = first_wrong(reports)
    if as_json:
        print_json(
            {
                "what": what,
                "target": on,
                "first_wrong": found.probe if found else None,
                "stages": [asdict(report) for report in reports],
            }
        )
    else:
        show_reports(f"{what} on {on}", reports)
    return EXIT_WRONG if found else EXIT_RIGHT


def probe_requested(
    services: Services, request: TrialRequest, cases: tuple[str, ...]
) -> tuple[str, str, tuple[ProbeReport, ...]]:
    """What was probed, where, and each stage; UsageError for a kernel that has no probes."""
    spec = services.catalogue.kernel(request.kernel)
    made = spec.template(request.template)
    if not spec.probes:
        raise UsageError(
            f"kernel {spec.name} has no probes",
            code="no_probes",
            mend="docs/probes.md says how to add them",
        )
    plan = services.plan(
        SearchRequest(
            kernel=spec.name,
            workloads=request.workloads or None,
            templates=(made.name,),
            target=request.target,
            trials=1,
            seed=request.seed or 0,
            baseline=NO_BASELINE,
        )
    )
    if plan.target.startswith("replay:"):
        raise UsageError(
            f"{plan.target} runs nothing, so there is nothing to probe",
            code="cannot_probe",
            mend="--target emulator:h200",
        )
    context = services.context(plan)
    candidate = requested_candidate(context, made, request)
    name = (
        made.name
        + (f":{request.preset}" if request.preset else "")
        + "".join(f" {setting}" for setting in request.settings)
    )
    return f"{spec.name} {name}", plan.target, probe_candidate(context, candidate, cases)


def show_reports(title: str, reports: tuple[ProbeReport, ...]) -> None:
    """A line a stage; then where it begins, and where to look."""
    rows = [(report.probe, styled(report.outcome), report.sentence) for report in reports]
    console().print(table(("stage", "outcome", ""), rows, title=title))
    found = first_wrong(reports)
    print()
    if found is None:
        missing = [report.probe for report in reports if report.outcome == "missing"]
        print(
            visible(
                "every stage is right"
                + (f" (not looked at: {', '.join(missing)})" if missing else "")
            )
        )
        return
    print(visible(f"first wrong stage: {found.probe}: {found.sentence}"))
    for case in found.cases:
        if case.wrong:
            print(visible(_worst(case)))
    if found.outcome == "wrong":
        print(visible(f"bound: {found.bound}"))
    if found.suspect:
        print(visible(f"look at: {found.suspect}"))


def _worst(one: ProbedCase) -> str:
    bound = f" within {one.worst_bound}" if one.worst_bound else ""
    return (
        f"  {one.case} ({one.shape}, seed {one.seed}, {one.order} order): {one.where}; worst at "
        f"{list(one.worst_index)}: {one.worst_value}, expected {one.worst_expected}{bound}"
    )
