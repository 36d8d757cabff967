"""`greenfast pareto`: the trials of a search that no other beats in every objective."""

from __future__ import annotations

from typing import Annotated

import typer

from greenfast.app.cli.options import AsJson, SearchName
from greenfast.app.cli.output import console, print_json, table, text
from greenfast.app.cli.services import opened_services
from greenfast.app.views.designs import Designs
from greenfast.app.views.trial_names import search_named

ObjectivesOption = Annotated[
    str | None,
    typer.Option(
        "--objectives",
        metavar="NAMES",
        help="Among time, registers, shared_memory and error, such as time,registers. "
        "[default: those of the search, else time,registers]",
    ),
]


def pareto(search: SearchName, objectives: ObjectivesOption = None, as_json: AsJson = False) -> int:
    """Show the trials of a search that no other trial beats in every objective.

    Correct trials count, also those that are slower than the baseline. Exit codes: 0 there is a
    front, 1 no correct trial has all of these figures.
    """
    from greenfast.app.views.pareto import UNITS, figure
    from greenfast.app.views.pareto import pareto as front_of_search

    with opened_services() as services:
        store = services.store
        search_id = search_named(store, search)
        report = front_of_search(store, search_id, names_of(objectives))
        plan = store.plan(search_id)
        designs = Designs(services.catalogue, plan.kernel, plan.compiled)
    if as_json:
        print_json(report.model_dump())
        return 0 if report.items else 1
    out = console()
    columns = [" ".join(filter(None, (name, UNITS[name]))) for name in report.objectives]
    rows = [
        (
            trial.number,
            designs.of(trial.template, trial.parameters),
            f"{trial.verdict}, the best" if trial.is_best else trial.verdict,
            *(figure(name, trial.objectives[name]) for name in report.objectives),
        )
        for trial in report.items
    ]
    if rows:
        kind = f", {report.time_kind} times" if report.time_kind else ""
        title = f"Pareto front of {search_id}{kind}"
        out.print(table(("trial", "candidate", "verdict", *columns), rows, title=title))
    out.print(text(sentence(report.front, report.correct)))
    return 0 if rows else 1


def names_of(objectives: str | None) -> tuple[str, ...] | None:
    """The names of `--objectives`; None if it was not given."""
    if objectives is None:
        return None
    return tuple(name.strip() for name in objectives.split(","))


def sentence(front: int, correct: int) -> str:
    if not correct:
        return "No correct trial has all of these figures."
    return f"{front:,} of {correct:,} correct trials are beaten by no other in every objective."
