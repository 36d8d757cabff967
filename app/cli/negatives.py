"""`greenfast negatives`: what was tried and did not help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import console, print_json, table, text
from greenfast.app.cli.services import opened_services
from greenfast.app.views.trial_names import search_named

if TYPE_CHECKING:
    from greenfast.app.views.negatives import ThemeOut
    from greenfast.app.views.schemas import NegativeOut

KernelOption = Annotated[
    str | None, typer.Option("--kernel", metavar="KERNEL", help="Only negatives of this kernel.")
]
SearchOption = Annotated[
    str | None,
    typer.Option(
        "--search", metavar="SEARCH", help="Only negatives of this search, with its themes."
    ),
]
ReasonOption = Annotated[
    str | None,
    typer.Option("--reason", metavar="REASON", help="Only this reason, such as slower or race."),
]
FeatureOption = Annotated[
    str | None,
    typer.Option(
        "--feature",
        metavar="NAME",
        help="Only candidates that differ from the baseline in this parameter.",
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Only candidates with this parameter value; may be repeated.",
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", metavar="GPU", help="Only negatives of this GPU, such as h200."),
]
DtypeOption = Annotated[
    str | None,
    typer.Option("--dtype", metavar="TYPE", help="Only negatives of this type, such as bf16."),
]
WorkloadOption = Annotated[
    str | None,
    typer.Option("--workload", metavar="NAME", help="Only negatives of this workload."),
]
TextOption = Annotated[
    str | None,
    typer.Option("--text", metavar="WORDS", help="Only negatives whose sentence has WORDS."),
]
LimitOption = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, max=500, help="List at most N.")
]


def negatives(
    kernel: KernelOption = None,
    search: SearchOption = None,
    reason: ReasonOption = None,
    feature: FeatureOption = None,
    settings: SettingsOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    workload: WorkloadOption = None,
    words: TextOption = None,
    limit: LimitOption = 50,
    as_json: AsJson = False,
) -> int:
    """List ideas that were tried and did not help, newest first.

    If the kernel, toolchain or driver has changed since, a negative is marked as expired: it is
    still a record, but no longer advice. `greenfast recheck` evaluates it again.
    """
    from greenfast.app.views.negatives import negatives_out, themes_of
    from greenfast.db.trial_filters import parameter_filters

    with opened_services() as services:
        store = services.store
        search_id = search_named(store, search) if search is not None else None
        page = store.negatives(
            kernel=services.known_kernel(kernel),
            search_id=search_id,
            reason=reason,
            feature=feature,
            parameters=parameter_filters(settings or ()),
            device=device,
            dtype=dtype,
            workload=workload,
            text=words,
            limit=limit,
        )
        rows = negatives_out(services, page.items)
        themes = themes_of(store, search_id) if search_id is not None else []
    if as_json:
        print_json(
            {
                "negatives": [row.model_dump() for row in rows],
                "themes": [theme.model_dump() for theme in themes],
                "more": page.next_cursor is not None,
            }
        )
    else:
        show(rows, themes, more=page.next_cursor is not None)
    return 0


def show(rows: list[NegativeOut], themes: list[ThemeOut], *, more: bool) -> None:
    """Print the themes, then a row for each negative."""
    out = console()
    for theme in themes:
        out.print(text(f"- {theme.sentence}; e.g. {theme.search_id}/{theme.example}"))
    if themes:
        out.print()
    if not rows:
        out.print(text("no such negative is recorded"))
        return
    cells = [
        (
            f"{row.search_id}/{row.number}",
            row.template,
            f"{row.stage}: {row.reason}",
            row.changed,
            row.finding + (f" [expired: {row.expired}]" if row.expired else ""),
        )
        for row in rows
    ]
    out.print(table(("trial", "template", "rejected", "changed", ""), cells))
    if more:
        out.print(text("There are more; --limit shows up to 500."))
