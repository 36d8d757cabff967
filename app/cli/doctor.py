"""`greenfast doctor`: what this machine has and lacks, and how to fix it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import console, print_json, styled, table
from greenfast.app.settings import Settings

if TYPE_CHECKING:
    from greenfast.app.cli.doctor_checks import Check

EXIT_WORKS, EXIT_LACKS = 0, 3


def doctor(as_json: AsJson = False) -> int:
    """Check what is installed, what is missing, and how to fix it.

    Searches on the emulator need every row that is not marked optional. The optional rows add
    measured times, profiling and comparisons. A second table lists the current settings.

    Exit codes: 0 the emulator works, 3 something that it needs is missing.
    """
    from greenfast.app.cli.doctor_checks import examine

    settings = Settings.from_environment()
    checks = examine(settings)
    if as_json:
        print_json([_json(check) for check in checks])
    else:
        show(checks, settings)
    return EXIT_WORKS if all(check.ok for check in checks if check.needed) else EXIT_LACKS


def show(checks: tuple[Check, ...], settings: Settings) -> None:
    """Print a row a check, a summary, and the settings in force."""
    from greenfast.app.cli.doctor_checks import settings_in_force

    rows = [
        (
            styled(_word(check)),
            check.name + ("" if check.needed else " (optional)"),
            check.detail,
            check.mend,
        )
        for check in checks
    ]
    console().print(table(("", "", "found", "what to do"), rows))
    print(f"\n{_summary(checks)}\n")
    console().print(table(("setting", "value", "purpose"), settings_in_force(settings)))


def _summary(checks: tuple[Check, ...]) -> str:
    missing = [check.name for check in checks if check.needed and not check.ok]
    if missing:
        return f"Searches cannot run here yet; missing: {', '.join(missing)}."
    if any(check.name == "NVIDIA GPU" and check.ok for check in checks):
        return "Searches can run here: on the emulator, and on a GPU (--target cuda:0)."
    return (
        "Searches can run here on the emulator, with modelled times. There is no GPU to measure on."
    )


def _word(check: Check) -> str:
    if check.ok:
        return "ok"
    return "missing" if check.needed else check.otherwise


def _json(check: Check) -> dict[str, Any]:
    return {
        "name": check.name,
        "status": "ok" if check.ok else "missing",
        "needed": check.needed,
        "detail": check.detail,
        "mend": check.mend,
    }
