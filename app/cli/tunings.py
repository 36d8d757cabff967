"""`greenfast tunings`: the tunings, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import console, print_json, styled, table
from greenfast.app.cli.services import opened_services
from greenfast.app.views.terminal import say
from greenfast.search.status import ENDED, SearchStatus

if TYPE_CHECKING:
    from greenfast.db.rows import TuningRow


def tunings(
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=500, help="List at most N.")
    ] = 20,
    as_json: AsJson = False,
) -> int:
    """List tunings, newest first, with their workloads and searches.

    `greenfast tune --resume TUNING` continues a tuning, and `greenfast show SEARCH` shows one of
    its searches.
    """
    from greenfast.app.views.tunings import tuning_out

    with opened_services() as services:
        rows = services.store.tunings(limit=limit).items
    if as_json:
        print_json([tuning_out(row).model_dump() for row in rows])
        return 0
    if not rows:
        say("no tunings yet; `greenfast tune KERNEL --workloads FILE` starts one")
        return 0
    console().print(
        table(
            ("tuning", "name", "status", "target", "workloads", "searches", "submitted"),
            [
                (
                    row.id,
                    row.name,
                    styled(row.status),
                    row.target,
                    f"{len(row.workloads):,}",
                    _searches(row),
                    row.created_at,
                )
                for row in rows
            ],
        )
    )
    return 0


def _searches(tuning: TuningRow) -> str:
    """`1 of 2 ended: s_aaaaaaaaaaaa s_bbbbbbbbbbbb`"""
    ended = sum(SearchStatus(row.status) in ENDED for row in tuning.searches)
    names = " ".join(row.id for row in tuning.searches)
    return f"{ended} of {len(tuning.searches)} ended: {names}"
