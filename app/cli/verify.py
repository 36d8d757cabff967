"""`greenfast verify`: recheck a bundle, for people and programs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from greenfast.app.bundle.verify import Finding, Report, verify_bundle
from greenfast.app.cli.output import console, print_json, styled, table
from greenfast.app.cli.trial import AsJson, Seed, Target
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services

EXIT_CODES = {Finding.AGREES: 0, Finding.DISAGREES: 1, Finding.CANNOT_TELL: 2}
WORDS = {
    Finding.AGREES: "agrees",
    Finding.DISAGREES: "DISAGREES",
    Finding.CANNOT_TELL: "cannot tell",
    Finding.NOT_RECHECKED: "not rechecked",
}


def add_verify_commands(app: typer.Typer) -> None:
    app.command("verify")(verify)


def verify(
    bundle: Annotated[
        Path, typer.Argument(metavar="BUNDLE.zip", help="As `greenfast bundle` writes it.")
    ],
    target: Target = None,
    seed: Seed = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Run the bundle's own reference and template.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Recheck a bundle: sums, compiling, right on new seeds, and its time on the same GPU model.

    Exits 0 when it agrees, 1 when it disagrees, 2 when that cannot be told here.
    """
    services = Services(Settings.from_environment())
    try:
        report = verify_bundle(services, bundle, target, trust=trust, seed=seed)
    finally:
        services.close()
    print_json({**asdict(report), "finding": report.finding}) if as_json else show_report(report)
    return EXIT_CODES[report.finding]


def show_report(report: Report) -> None:
    rows = [(item.name, styled(WORDS[item.finding]), item.sentence) for item in report.items]
    out = console()
    out.print(
        table(
            ("", "", ""),
            rows,
            title=f"{report.bundle}: {report.kernel}, template {report.template}, on "
            f"{report.target}, seed {report.seed}",
        )
    )
    out.print(WORDS[report.finding])
