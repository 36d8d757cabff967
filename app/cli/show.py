"""`greenfast show`: a stored search, or one stored trial with its evidence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import console, microseconds, print_json, table, text
from greenfast.app.cli.services import opened_services
from greenfast.app.cli.trial_panel import JSON, show_trial
from greenfast.app.views.designs import Design, Designs
from greenfast.app.views.next_steps import check_of_trial
from greenfast.app.views.trial_names import TrialName, named
from greenfast.search.text import abridged, written
from greenfast.search.verdict import VerdictName

if TYPE_CHECKING:
    from greenfast.app.views.schemas import TrialDetailOut
    from greenfast.app.wiring import Services
    from greenfast.db.rows import SearchRow

LONGEST_LOG = 32_000  # characters


def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="SEARCH[/TRIAL]",
            help="A search, or a trial of it: s_abc/7, last/best, last/baseline.",
        ),
    ],
    as_json: AsJson = False,
) -> int:
    """Show a search with its best candidate, or one trial with its gates and evidence."""
    with opened_services() as services:
        subject = named(services.store, name)
        if subject.number is None:
            return _show_search(services, subject.search_id, as_json)
        return _show_trial(services, subject, subject.number, as_json)


def _show_search(services: Services, search_id: str, as_json: bool) -> int:
    from greenfast.app.cli.search_report import show_search
    from greenfast.app.views.progress import search_detail

    detail, plan = search_detail(services.store, search_id), services.store.plan(search_id)
    if as_json:
        print_json(detail.model_dump())
        return 0
    facts = [
        ("name", detail.name),
        ("kernel", detail.kernel),
        ("workloads", ", ".join(detail.workloads)),
        ("templates", ", ".join(detail.templates)),
        ("target", detail.target),
        ("strategy", detail.strategy),
        ("start", detail.start),
        *([("objectives", ", ".join(detail.objectives))] if detail.objectives[1:] else []),
        ("baseline", detail.baseline),
        ("seed", detail.seed),
        ("created", detail.created_at),
    ]
    facts_table = table(("", ""), facts)
    facts_table.show_header = False
    out = console()
    out.print(facts_table)
    out.print()
    show_search(detail, Designs(services.catalogue, plan.kernel, plan.compiled))
    if detail.objectives[1:]:
        out.print(f"Its Pareto front: greenfast pareto {detail.id}")
    return 0


def _show_trial(services: Services, name: TrialName, number: int, as_json: bool) -> int:
    from greenfast.app.cli.lineage import lineage_table
    from greenfast.app.views.lineage import lineage
    from greenfast.app.views.probe_hint import probe_of
    from greenfast.app.views.schemas import ProbedTrialOut, TrialDetailOut

    store = services.store
    search, trial = store.search(name.search_id), store.trial(name.search_id, number)
    probe = probe_of(services.catalogue, search, trial)
    detail = TrialDetailOut.model_validate(trial)
    if as_json:
        print_json(ProbedTrialOut(**detail.model_dump(), probe=probe).model_dump())
        return 0
    compiled = store.plan(name.search_id).compiled
    design = Designs(services.catalogue, search.kernel, compiled).of(
        trial.template, trial.parameters
    )
    report: JSON = {
        **detail.model_dump(),
        "verdict": trial.verdict or trial.state,
        "log": abridged(trial.log, LONGEST_LOG),
    }
    title = f"trial {number} of {search.id}: {search.kernel} {design} on {search.target}"
    show_trial(report, title, _further(detail, search, design, probe))
    _show_changes(detail, search)
    _show_workloads(detail)
    if trial.parents:
        console().print(lineage_table(lineage(store, search.id, number)))
    return 0


def _further(trial: TrialDetailOut, search: SearchRow, design: Design, probe: str) -> Iterator[str]:
    if probe:
        yield f"To find the stage that goes wrong: {probe}"
    if command := check_of_trial(search, trial, design):
        yield f"To look for races, missing barriers and bad accesses by line: {command}"
    if trial.source_digest and trial.verdict == VerdictName.REJECTED:
        yield f"To read its source: greenfast source {trial.source_digest[:16]}"


def _show_changes(trial: TrialDetailOut, search: SearchRow) -> None:
    if not trial.changed:
        return
    rows = [(row.name, written(row.after), written(row.before)) for row in trial.changed]
    console().print(table(("differs", "here", f"in {search.baseline}"), rows))


def _show_workloads(trial: TrialDetailOut) -> None:
    """The times of each workload, where there are several."""
    timings = trial.gates.get("performance", {}).get("timings", ())
    if len(timings) < 2:
        return
    rows = [
        (
            timing["workload"],
            microseconds(timing["time_median_us"], timing["time_kind"], timing.get("mode")),
            text(timing.get("limited_by") or None),
        )
        for timing in timings
    ]
    console().print(table(("workload", "time", "limited by"), rows))
