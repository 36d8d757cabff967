"""`greenfast report`: a search or a tuning as a lab note."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from greenfast.app.cli.files import write_output
from greenfast.app.cli.options import AsJson, Output
from greenfast.app.cli.output import print_json
from greenfast.app.cli.services import opened_services
from greenfast.app.views.terminal import say


def report(
    name: Annotated[
        str, typer.Argument(metavar="SEARCH|TUNING", help="A search, `last`, or a tuning's id.")
    ],
    html: Annotated[
        bool, typer.Option("--html", help="One self-contained HTML file instead of Markdown.")
    ] = False,
    output: Output = None,
    as_json: AsJson = False,
) -> int:
    """Write a search or a tuning as a lab note: question, set-up, stages, winner, negatives.

    Every number is read from the database, and links to the trial that it comes from. Without
    --output, Markdown is printed.

    Example: `greenfast report last --html --output report.html`.
    """
    from greenfast.app.dashboard.report_html import report_file
    from greenfast.app.views.report import require_report
    from greenfast.app.views.report_markdown import markdown

    with opened_services() as services:
        document = require_report(services, name)
    if as_json:
        print_json(document.model_dump())
        return 0
    text = report_file(document) if html else markdown(document)
    if output is None:
        sys.stdout.write(text)
        return 0
    write_output(output, text)
    say(f"{output}: {document.title}")
    return 0
