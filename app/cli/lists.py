"""Commands that show stored or installed things: targets, templates, searches, sources, bundles."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from greenfast.app.cli.files import write_output
from greenfast.app.cli.options import AsJson, Output, SearchId
from greenfast.app.cli.output import (
    console,
    duration,
    microseconds,
    print_json,
    styled,
    table,
    text,
)
from greenfast.app.cli.services import opened_services
from greenfast.app.settings import Settings
from greenfast.app.views.terminal import say
from greenfast.app.views.trial_names import search_named
from greenfast.app.views.values import in_order
from greenfast.search.text import visible, written

if TYPE_CHECKING:
    from greenfast.db.rows import QueueState, SearchRow

WIDEST_VALUES = 70  # characters of a parameter's values


def targets(as_json: AsJson = False) -> int:
    """List the targets that candidates can run on, and why the others are not available.

    cuda:N measures times on a GPU. emulator:GPU runs candidates on the CPU and models their times.
    replay:NAME answers from a recording of a GPU.
    """
    from greenfast.app.views.listings import list_targets

    known = list_targets()
    if as_json:
        print_json([target.model_dump() for target in known])
        return 0
    console().print(
        table(
            ("target", "", "time", "available"),
            [
                (target.name, target.title, target.time_kind, target.why or "yes")
                for target in known
            ],
        )
    )
    return 0


def templates(
    kernel: Annotated[
        str | None, typer.Argument(metavar="KERNEL", help="List only this kernel's templates.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """List templates with their parameters and presets.

    A preset is a documented set of parameter values; TEMPLATE:PRESET names it, for example as a
    --baseline.
    """
    from greenfast.app.views.listings import list_templates
    from greenfast.app.wiring import Services

    catalogue = Services(Settings.from_environment()).catalogue
    known = list_templates(catalogue, kernel)
    for error in catalogue.kernels() if kernel is None else ():
        if isinstance(error, Exception):
            say(f"greenfast: left out: {error}")
    if as_json:
        print_json([template.model_dump() for template in known])
        return 0
    out = console()
    for template in known:
        parameters = table(
            ("parameter", "values", "default", ""),
            [
                (
                    parameter.name,
                    ", ".join(map(written, in_order(parameter.values))),
                    written(parameter.default),
                    parameter.doc,
                )
                for parameter in template.parameters
            ],
            title=f"{template.kernel} {template.name}: {template.idea}",
        )
        parameters.columns[1].max_width = WIDEST_VALUES
        out.print(parameters)
        presets = [(preset.name, preset.doc) for preset in template.presets]
        out.print(table(("preset", ""), presets))
        out.print()
    return 0


def searches(
    status: Annotated[
        str | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="Only searches in this state: queued, running, paused, completed, cancelled, "
            "failed.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=500, help="List at most N.")
    ] = 20,
    as_json: AsJson = False,
) -> int:
    """List searches, newest first."""
    from greenfast.app.views.schemas import SearchOut

    with opened_services() as services:
        rows = services.store.searches(limit=limit, status=status).items
        queue = services.store.queue_state()
    if as_json:
        print_json([SearchOut.model_validate(row).model_dump() for row in rows])
        return 0
    if not rows:
        say(
            f"no search is {status}"
            if status
            else "no searches yet; `greenfast search KERNEL` starts one"
        )
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


def shown_status(row: SearchRow, queue: QueueState) -> Text:
    """`queued, 3rd of 5, no worker is running`"""
    from greenfast.app.views.progress import queue_words

    words = queue_words(row, queue)
    return text(f"{row.status}, {words}") if words else styled(row.status)


def source(
    digest: Annotated[
        str,
        typer.Argument(
            metavar="DIGEST", help="The digest of a source, or at least its first 8 digits."
        ),
    ],
    output: Output = None,
    as_json: AsJson = False,
) -> int:
    """Print the CUDA source of a candidate, by its digest (SHA-256).

    `greenfast search` prints the digest of the best candidate, and pages show it for each trial.
    """
    with opened_services() as services:
        stored = services.store.source(digest)
    if output is not None:
        write_output(output, stored.text)
        say(f"written to {output}")
    if as_json:
        print_json(
            {
                "digest": stored.digest,
                "kernel": stored.kernel,
                "template": stored.template,
                "text": stored.text,
            }
        )
    elif output is None:
        sys.stdout.write(visible(stored.text) if sys.stdout.isatty() else stored.text)
    return 0


def bundle_command(
    search: SearchId,
    output: Output = None,
    trial: Annotated[
        int | None,
        typer.Option("--trial", metavar="N", min=0, help="Bundle trial N instead of the best one."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Save the best candidate of a search as a zip file that runs without greenfast.

    It contains the CUDA source, its launch sizes, a reference, host programs in Python and C++, and
    the evidence. The same search always gives the same bytes.
    """
    from greenfast.app.bundle.download import bundle

    with opened_services() as services:
        search = search_named(services.store, search)
        packed = bundle(services, search, trial)
    path = output or Path(packed.file_name)
    write_output(path, packed.content)
    say(f"written to {path}")
    if as_json:
        print_json(
            {
                "id": search,
                "path": str(path),
                "bytes": len(packed.content),
                "sha256": packed.sha256,
                "files": list(packed.names),
                "source_digest": packed.source_digest,
            }
        )
    return 0
