"""`greenfast trials`: the trials of a search, selected and sorted, in chosen columns."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from greenfast.app.cli.columns import DEFAULT, Column, by_meaning, columns_named, known_columns
from greenfast.app.cli.csv_text import csv_text
from greenfast.app.cli.options import AsJson, SearchName
from greenfast.app.cli.output import console, print_json, table
from greenfast.app.cli.services import opened_services
from greenfast.app.views.designs import Designs
from greenfast.app.views.terminal import say
from greenfast.app.views.trial_names import search_named

if TYPE_CHECKING:
    from greenfast.db.rows import TrialRow
    from greenfast.db.store import Store
    from greenfast.db.trial_filters import ParameterFilter

PAGE = 500


class Format(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"


VerdictOption = Annotated[
    str | None,
    typer.Option(
        "--verdict",
        metavar="NAME",
        help="Only trials with this verdict: accepted, green, rejected, faulted.",
    ),
]
StageOption = Annotated[
    str | None,
    typer.Option(
        "--stage", metavar="NAME", help="Only trials that ended at this stage, such as ptxas."
    ),
]
ReasonOption = Annotated[
    str | None,
    typer.Option(
        "--reason", metavar="NAME", help="Only trials rejected for this reason, such as race."
    ),
]
TemplateOption = Annotated[
    str | None, typer.Option("--template", metavar="NAME", help="Only trials of this template.")
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="NAME=VALUE",
        help="Only trials with this parameter value; may be repeated.",
    ),
]
TextOption = Annotated[
    str | None,
    typer.Option(
        "--text", metavar="WORDS", help="Only trials whose sentence or name contains WORDS."
    ),
]
SortOption = Annotated[
    str,
    typer.Option(
        "--sort", metavar="COLUMN", help="The column to sort by; parameters are columns, too."
    ),
]
ColumnsOption = Annotated[
    str,
    typer.Option(
        "--columns",
        metavar="A,B,...",
        help="What to show: number, verdict, stage, reason, why, sentence, template, preset, "
        "design, time, ratio, registers, spills, smem, error, took, render_s, compile_s, ptxas_s, "
        "correctness_s, performance_s, safety_s, waiting_s, origin, recorded, candidate, source, "
        "or a parameter.",
    ),
]
DescendingOption = Annotated[
    bool,
    typer.Option(
        "--descending", help="Sort from large to small; trials without a value come last."
    ),
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="At most N trials. [default: all]")
]
FormOption = Annotated[
    Format,
    typer.Option(
        "--format", help="A table for people, or CSV or JSON with all digits for programs."
    ),
]


def trials(
    search: SearchName,
    verdict: VerdictOption = None,
    stage: StageOption = None,
    reason: ReasonOption = None,
    template: TemplateOption = None,
    where: WhereOption = None,
    text: TextOption = None,
    sort: SortOption = "number",
    descending: DescendingOption = False,
    columns: ColumnsOption = DEFAULT,
    limit: LimitOption = None,
    form: FormOption = Format.TABLE,
    as_json: AsJson = False,
) -> int:
    """List the trials of a search.

    A trial's design is its nearest preset with the parameters that differ from it.

    Examples: `greenfast trials last --sort time --limit 10`,
    `greenfast trials last --verdict rejected --where tile_m=64 --columns number,reason,sentence`.
    """
    from greenfast.db.trial_filters import parameter_filters

    form = Format.JSON if as_json else form
    with opened_services() as services:
        store = services.store
        search_id = search_named(store, search)
        plan = store.plan(search_id)
        rows = selected(
            store,
            search_id,
            verdict=verdict,
            stage=stage,
            reason=reason,
            template=template,
            parameters=parameter_filters(where or ()),
            text=text,
        )
        designs = Designs(services.catalogue, plan.kernel, plan.compiled)
        known = known_columns(designs)
        names = parameters_of(store, search_id, rows)
        (order,) = columns_named([sort], known, names)
        shown = columns_named(_split(columns), known, names)
    show(by_meaning(rows, order, descending=descending)[:limit], shown, form)
    return 0


def show(rows: Sequence[TrialRow], columns: Sequence[Column], form: Format) -> None:
    """Print the trials in a form; JSON has all fields."""
    from greenfast.app.views.schemas import TrialOut

    names = [column.name for column in columns]
    if form is Format.JSON:
        print_json([TrialOut.model_validate(row).model_dump() for row in rows])
    elif form is Format.CSV:
        values = ([column.value(row) for column in columns] for row in rows)
        print(csv_text(names, values), end="")
    elif not rows:
        say("no trial matches")
    else:
        cells = ([column.cell(row) for column in columns] for row in rows)
        console().print(table(names, cells))


def selected(
    store: Store,
    search_id: str,
    *,
    verdict: str | None = None,
    stage: str | None = None,
    reason: str | None = None,
    template: str | None = None,
    parameters: Sequence[ParameterFilter] = (),
    text: str | None = None,
) -> list[TrialRow]:
    """Every matching trial, in order of the numbers."""
    rows: list[TrialRow] = []
    cursor = None
    while True:
        page = store.trials(
            search_id,
            verdict=verdict,
            stage=stage,
            reason=reason,
            template=template,
            parameters=parameters,
            text=text,
            limit=PAGE,
            cursor=cursor,
        )
        rows += page.items
        cursor = page.next_cursor
        if cursor is None:
            return rows


def parameters_of(store: Store, search_id: str, rows: Sequence[TrialRow]) -> list[str]:
    """The names of the parameters, also where no trial matches."""
    some = rows or store.trials(search_id, limit=PAGE).items
    return list(dict.fromkeys(name for row in some for name in row.parameters))


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]
