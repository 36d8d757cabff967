"""`greenfast ledger`: the ledger as a file, and records of other people's ledgers."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from greenfast.app.cli.files import write_output
from greenfast.app.cli.options import AsJson, Output
from greenfast.app.cli.output import console, print_json, table, text
from greenfast.app.cli.services import opened_services
from greenfast.app.views.terminal import say
from greenfast.app.views.trial_names import search_named
from greenfast.search.errors import UsageError

if TYPE_CHECKING:
    from greenfast.db.store import Store


class Action(StrEnum):
    EXPORT = "export"
    IMPORT = "import"
    LIST = "list"


def ledger(
    action: Annotated[
        Action,
        typer.Argument(
            metavar="export|import|list",
            help="Write a file, read one, or list the records that were read.",
        ),
    ],
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The file to import.")
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            "--search", metavar="SEARCH", help="Export only this search; may be repeated."
        ),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", metavar="KERNEL", help="List only records of this kernel."),
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> int:
    """Exchange the ledger as JSON lines, with provenance and digests.

    Imported records are kept apart: they are listed as foreign, and no search, time or champion
    uses them. A file that is not a ledger, newer or changed is refused as a whole, with the line.

    Examples: `greenfast ledger export --output ours.jsonl`, `greenfast ledger import theirs.jsonl`.
    """
    from greenfast.app.views.ledger_exchange import import_file

    if (file is None) == (action is Action.IMPORT):
        raise UsageError(
            "import needs a file, and export and list take none",
            code="bad_command_line",
            mend="greenfast ledger import FILE",
        )
    with opened_services() as services:
        store = services.store
        if action is Action.EXPORT:
            return _export(store, search or [], output)
        if file is not None:
            count, new = import_file(store, file)
            if as_json:
                print_json({"records": count, "new": new})
            else:
                say(f"{count} foreign records, {new} of them new")
            return 0
        _list(store, kernel, as_json=as_json)
    return 0


def _export(store: Store, names: list[str], output: Path | None) -> int:
    from greenfast.app.views.ledger_exchange import export_lines

    every = [search_id for search_id, _ in store.search_ids(limit=100_000)]
    ids = [search_named(store, name) for name in names] or every[::-1]
    content = "\n".join(export_lines(store, dict.fromkeys(ids))) + "\n"
    if output is None:
        sys.stdout.write(content)
    else:
        write_output(output, content)
        say(f"{output}: {content.count(chr(10)) - 1} records of {len(ids)} searches")
    return 0


def _list(store: Store, kernel: str | None, *, as_json: bool) -> None:
    from greenfast.app.views.ledger_exchange import foreign_out

    records = foreign_out(store, kernel)
    if as_json:
        print_json([record.model_dump(mode="json") for record in records])
        return
    if not records:
        console().print(text("no foreign record was imported"))
        return
    rows = [
        (
            f"{each.record.search_id}/{each.record.number}",
            each.record.kernel,
            each.record.environment.get("device", each.record.target),
            f"{each.record.verdict} {each.record.reason or ''}".strip(),
            each.record.sentence,
        )
        for each in records
    ]
    console().print(table(("foreign trial", "kernel", "device", "verdict", ""), rows))
