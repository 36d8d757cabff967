"""The report of `greenfast verify` on the terminal, and its exit code."""

from __future__ import annotations

from greenfast.app.bundle.verify import Finding, Report
from greenfast.app.cli.output import console, styled, table

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
