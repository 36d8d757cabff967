"""Commands that show what there is: targets, templates, searches, sources, bundles."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from greenfast.app.bundle.download import bundle
from greenfast.app.cli.output import console, duration, microseconds, print_json, say, styled, table
from greenfast.app.cli.trial import AsJson, Output, write_text
from greenfast.app.settings import Settings
from greenfast.app.views.listings import list_targets, list_templates
from greenfast.app.views.progress import queue_words, search_detail
from greenfast.app.views.schemas import SearchOut
from greenfast.app.wiring import Services
from greenfast.db.rows import QueueState, SearchRow
from greenfast.search.text import visible

SearchId = Annotated[
    str, typer.Argument(metavar="SEARCH_ID", help="A search, as `greenfast searches` lists them.")
]


def add_list_commands(app: typer.Typer) -> None:
    for command in (targets, templates, searches, source):
        app.command(command.__name__)(command)
    app.command("bundle")(bundle_command)
    for wanted, doc in (
        ("pause", "Let a search finish what is in flight and wait."),
        ("resume", "Queue a paused search again, for a worker."),
        ("cancel", "End a search; its trials stay."),
    ):
        app.command(wanted, help=doc)(_control(wanted))


@contextmanager
def opened_services() -> Iterator[Services]:
    services = Services(Settings.from_environment())
    try:
        yield services
    finally:
        services.close()


def targets(as_json: AsJson = False) -> int:
    """Where candidates can run on this machine."""
    found = list_targets()
    if as_json:
        print_json([one.model_dump() for one in found])
        return 0
    console().print(
        table(
            ("target", "", "time", "available"),
            [(one.name, one.title, one.time_kind, one.why or "yes") for one in found],
        )
    )
    return 0


def templates(
    kernel: Annotated[str | None, typer.Argument(help="Only this kernel's.")] = None,
    as_json: AsJson = False,
) -> int:
    """Templates with their parameters and presets."""
    catalogue = Services(Settings.from_environment()).catalogue
    found = list_templates(catalogue, kernel)
    for error in catalogue.kernels() if kernel is None else ():
        if isinstance(error, Exception):
            say(f"greenfast: left out: {error}")
    if as_json:
        print_json([one.model_dump() for one in found])
        return 0
    out = console()
    for one in found:
        out.print(
            table(
                ("parameter", "values", "default", ""),
                [
                    (each.name, ", ".join(map(str, each.values)), each.default, each.doc)
                    for each in one.parameters
                ],
                title=f"{one.kernel} {one.name}: {one.idea}",
            )
        )
        out.print(table(("preset", ""), [(each.name, each.doc) for each in one.presets]))
        out.print()
    return 0


def searches(
    status: Annotated[
        str | None, typer.Option("--status", help="Only those in this state.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500)] = 20,
    as_json: AsJson = False,
) -> int:
    """Searches, newest first."""
    with opened_services() as services:
        rows = services.store.searches(limit=limit, status=status).items
        queue = services.store.queue_state()
    if as_json:
        print_json([SearchOut.model_validate(row).model_dump() for row in rows])
        return 0
    console().print(
        table(
            ("search", "name", "status", "trials", "best", "spent", ""),
            [
                (
                    row.id,
                    row.name,
                    shown_status(row, queue),
                    f"{row.trials_done}/{row.trials_budget or '-'}",
                    microseconds(row.best_time_us, row.time_kind, row.time_mode),
                    duration(row.spent_s),
                    row.why,
                )
                for row in rows
            ],
        )
    )
    return 0


def shown_status(row: SearchRow, queue: QueueState) -> Any:
    """`queued, 3rd of 5, no worker is running`"""
    words = queue_words(row, queue)
    return f"{row.status}, {words}" if words else styled(row.status)


def source(
    digest: Annotated[
        str, typer.Argument(help="A source's digest, or 8 or more of its first digits.")
    ],
    output: Output = None,
    as_json: AsJson = False,
) -> int:
    """A candidate's CUDA source by its digest."""
    with opened_services() as services:
        found = services.store.source(digest)
    if output is not None:
        write_text(output, found.text)
        say(f"written to {output}")
    if as_json:
        print_json(
            {
                "digest": found.digest,
                "kernel": found.kernel,
                "template": found.template,
                "text": found.text,
            }
        )
    elif output is None:
        sys.stdout.write(visible(found.text) if sys.stdout.isatty() else found.text)
    return 0


def bundle_command(
    search: SearchId,
    output: Output = None,
    trial: Annotated[
        int | None, typer.Option("--trial", min=0, help="Not the best, this one.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """The best candidate as a zip file: source, launch, reference, examples that run, evidence."""
    with opened_services() as services:
        made = bundle(services, search, trial)
    path = output or Path(made.file_name)
    write_text(path, made.content)
    say(f"written to {path}")
    if as_json:
        print_json(
            {
                "id": search,
                "path": str(path),
                "bytes": len(made.content),
                "sha256": made.sha256,
                "files": list(made.names),
                "source_digest": made.source_digest,
            }
        )
    return 0


def _control(wanted: str):
    def command(search: SearchId, as_json: AsJson = False) -> int:
        with opened_services() as services:
            services.store.request_control(search, wanted)
            detail = search_detail(services.store, search)
        coming = f", {detail.wanted} asked for" if detail.wanted else ""
        say(f"{search} is {detail.status}{coming}")
        if as_json:
            print_json(detail.model_dump())
        return 0

    return command
