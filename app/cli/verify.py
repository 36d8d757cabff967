"""`greenfast verify`: recheck a bundle, for people and programs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from greenfast.app.bundle.verify import Finding, Report
from greenfast.app.bundle.verify_tuning import verify_any
from greenfast.app.cli.options import AsJson, Seed
from greenfast.app.cli.output import console, print_json, styled, table
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services

EXIT_CODES = {Finding.AGREES: 0, Finding.DISAGREES: 1, Finding.CANNOT_TELL: 2}
WORDS = {
    Finding.AGREES: "agrees",
    Finding.DISAGREES: "DISAGREES",
    Finding.CANNOT_TELL: "cannot tell",
    Finding.NOT_RECHECKED: "not rechecked",
}
SENTENCES = {
    Finding.AGREES: "The bundle agrees with all that was rechecked here.",
    Finding.DISAGREES: "The bundle DISAGREES with this machine.",
    Finding.CANNOT_TELL: "This machine cannot tell whether the bundle holds.",
}


def verify(
    bundle: Annotated[
        Path,
        typer.Argument(metavar="BUNDLE.zip", help="A bundle, as `greenfast bundle` writes it."),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="Where to recheck it. [default: cuda:0 if there is a GPU, else emulator:h200]",
        ),
    ] = None,
    seed: Seed = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Run the bundle's own reference and template, although this installation does "
            "not know them.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Check a bundle again on this machine: checksums, compilation, correctness, safety, time.

    Correctness is checked on new seeds. The time is measured again only on the same GPU model.

    Exit codes: 0 the bundle agrees, 1 it disagrees, 2 this machine cannot tell.
    """
    services = Services(Settings.from_environment())
    try:
        report = verify_any(services, bundle, target, trust=trust, seed=seed)
    finally:
        services.close()
    if as_json:
        print_json({**asdict(report), "finding": report.finding})
    else:
        show_report(report)
    return EXIT_CODES[report.finding]


def show_report(report: Report) -> None:
    """Print a line an item, then the overall finding."""
    rows = [(item.name, styled(WORDS[item.finding]), item.sentence) for item in report.items]
    title = (
        f"{report.bundle}: {report.kernel}, template {report.template}, on {report.target}, "
        f"seed {report.seed}"
    )
    out = console()
    out.print(table(("", "", ""), rows, title=title))
    out.print(SENTENCES[report.finding])
