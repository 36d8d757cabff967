"""`greenfast verify`: recheck a bundle, for people and programs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from greenfast.app.cli.options import AsJson, Seed
from greenfast.app.cli.output import print_json
from greenfast.app.settings import Settings


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
            help="Where to check it. [default: cuda:0 if there is a GPU, else emulator:h200]",
        ),
    ] = None,
    seed: Seed = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Run the bundle's own reference and template, and go by its kernel.toml and "
            "template.toml, although this installation does not know them.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Check a bundle again on this machine: checksums, compilation, correctness, safety, time.

    Correctness is checked on new seeds. The time is measured again only on the same GPU model.

    Exit codes: 0 the bundle agrees, 1 it disagrees, 2 this machine cannot tell.
    """
    from greenfast.app.bundle.verify_tuning import verify_any
    from greenfast.app.cli.verify_report import EXIT_CODES, show_report
    from greenfast.app.wiring import Services

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
