"""`greenfast doctor`: what greenfast needs, what is there, and what to do about the rest."""

from __future__ import annotations

from typing import Any

import typer

from greenfast.app.cli.doctor_checks import Check, examine, settings_in_force
from greenfast.app.cli.output import console, print_json, styled, table
from greenfast.app.cli.trial import AsJson
from greenfast.app.settings import Settings

EXIT_WORKS, EXIT_LACKS = 0, 3


def add_doctor_commands(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(as_json: AsJson = False) -> int:
    """What greenfast needs, what is there, and what to do about the rest. Exits 0 when the emulator path works."""
    settings = Settings.from_environment()
    checks = examine(settings)
    if as_json:
        print_json([_json(check) for check in checks])
    else:
        console().print(
            table(
                ("", "", "found", "what to do"),
                [
                    (
                        styled(_word(check)),
                        check.name + ("" if check.needed else " (optional)"),
                        check.detail,
                        check.mend,
                    )
                    for check in checks
                ],
            )
        )
        print()
        console().print(table(("setting", "value", "what it is for"), settings_in_force(settings)))
    return EXIT_WORKS if all(check.ok for check in checks if check.needed) else EXIT_LACKS


def _word(one: Check) -> str:
    return "ok" if one.ok else "missing" if one.needed else "absent"


def _json(one: Check) -> dict[str, Any]:
    return {
        "name": one.name,
        "status": "ok" if one.ok else "missing",
        "needed": one.needed,
        "detail": one.detail,
        "mend": one.mend,
    }
