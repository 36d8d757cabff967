"""`greenfast recheck`: old negatives, evaluated again today."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import console, print_json, table, text
from greenfast.app.cli.services import opened_services
from greenfast.app.views.terminal import say
from greenfast.app.views.trial_names import named
from greenfast.search.errors import UsageError

if TYPE_CHECKING:
    from greenfast.app.views.rechecks import RecheckOut
    from greenfast.app.wiring import Services

EXIT_HOLD, EXIT_CHANGED = 0, 1


def recheck(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SEARCH[/TRIAL]]...",
            help="Rejected trials, or searches for all of theirs.",
        ),
    ] = None,
    kernel: Annotated[
        str | None, typer.Option("--kernel", metavar="KERNEL", help="All expired negatives of it.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=500, help="Evaluate at most N trials.")
    ] = 20,
    as_json: AsJson = False,
) -> int:
    """Evaluate old negatives again, with today's files, toolchain and driver.

    The record of a negative never changes; today's result is stored beside it. Without a name,
    all negatives whose kernel or toolchain has changed since are evaluated.

    Exit codes: 0 every negative still holds, 1 one no longer holds.
    """
    from greenfast.app.views.rechecks import recheck as rechecked

    with opened_services() as services:
        subjects = _subjects(services, names or [], kernel, limit)
        results: list[RecheckOut] = []
        for search_id, number in subjects:
            try:
                results.append(rechecked(services, search_id, number, say))
            except UsageError as error:
                say(f"{search_id}/{number} cannot be evaluated any more: {error}")
    if as_json:
        print_json([result.model_dump() for result in results])
    else:
        show(results)
    return EXIT_HOLD if all(result.holds for result in results) else EXIT_CHANGED


def _subjects(
    services: Services, names: list[str], kernel: str | None, limit: int
) -> list[tuple[str, int]]:
    from greenfast.app.views.negatives import negatives_out

    store = services.store
    subjects: list[tuple[str, int]] = []
    for written in names:
        name = named(store, written)
        if name.number is not None:
            subjects.append((name.search_id, name.number))
            continue
        page = store.negatives(search_id=name.search_id, limit=limit)
        subjects += [(row.search_id, row.number) for row in page.items]
    if not names:
        page = store.negatives(kernel=services.known_kernel(kernel), limit=500)
        rows = negatives_out(services, page.items)
        subjects = [(row.search_id, row.number) for row in rows if row.expired]
    return list(dict.fromkeys(subjects))[:limit]


def show(results: list[RecheckOut]) -> None:
    out = console()
    if not results:
        out.print(text("no negative has expired"))
        return
    rows = [
        (
            f"{result.search_id}/{result.number}",
            result.before,
            result.now or result.verdict,
            "holds" if result.holds else "no longer holds",
            result.sentence,
        )
        for result in results
    ]
    out.print(table(("trial", "recorded", "today", "", ""), rows))
