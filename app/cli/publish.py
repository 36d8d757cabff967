"""`greenfast publish`: the ledger as plain HTML pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import print_json
from greenfast.app.cli.services import opened_services
from greenfast.app.views.terminal import say
from greenfast.app.views.trial_names import search_named


def publish(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A new or empty folder, or an earlier copy.")
    ],
    search: Annotated[
        list[str] | None,
        typer.Option("--search", metavar="SEARCH", help="Only this search; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Write champions, negatives, reports and kernels as plain HTML, for any web server.

    The pages run no script and load nothing from elsewhere. A later run replaces the folder as a
    whole; a folder with other files is refused.
    """
    from greenfast.app.dashboard.publishing import publish as published

    with opened_services() as services:
        store = services.store
        every = [search_id for search_id, _ in store.search_ids(limit=100_000)]
        ids = list(dict.fromkeys(search_named(store, name) for name in search or [])) or every
        done = published(services, folder, ids)
    if as_json:
        print_json(vars(done))
    else:
        say(
            f"{folder}: {done.searches} searches, {done.champions} champions, "
            f"{done.negatives} negatives, {done.kernels} kernels"
        )
    return 0
