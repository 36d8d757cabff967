"""The section of docs/emulator.md on public labelled suites, made from their results."""

from __future__ import annotations

from bench.correctness.suites.cases import BOUNDS, RACE
from bench.correctness.suites.checking import DIFFERENT, FALSE_ALARM, MISSED, RIGHT
from bench.pages.sections import NOT_YET, rows, source_of, table
from bench.results import Row

SUITES = {"suites/hirace": "Indigo, as in HiRace's artifact", "suites/scor": "ScoR"}
LABELS = {RACE: "race", BOUNDS: "index out of bounds only", "clean": "clean"}


def suite_tables() -> str:
    """Files by suite and label, the CPU time of a file, and each documented disagreement."""
    stored = {name: lines[0] for name in SUITES if (lines := rows(name, "summary"))}
    if not stored:
        return NOT_YET
    return "\n\n".join(
        part for part in (outcomes(stored), times(stored), disagreements(stored)) if part
    )


def outcomes(stored: dict[str, Row]) -> str:
    lines = [
        (
            SUITES[name],
            LABELS[label],
            counts["files"],
            *(counts.get(outcome, 0) for outcome in (RIGHT, DIFFERENT, MISSED, FALSE_ALARM)),
        )
        for name, summary in stored.items()
        for label, counts in summary["by_label"].items()
    ]
    titles = (
        *("suite", "label", "files", "judged as labelled", "label disputed"),
        *("missed", "false alarm"),
    )
    return table(titles, lines)


def times(stored: dict[str, Row]) -> str:
    """CPU seconds of one file: compiling it, and all of its runs."""
    lines = [
        (
            SUITES[name],
            f"{summary['median_cpu_s']:.2f} s",
            f"{summary['slowest_cpu_s']:.2f} s",
            sum(row["runs"] for row in rows(name, "file")),
            source_of(name),
        )
        for name, summary in stored.items()
    ]
    return table(("suite", "CPU time a file, median", "slowest", "checked runs", "from"), lines)


def disagreements(stored: dict[str, Row]) -> str:
    lines = [
        f"- `{row['name']}` is labelled {'as a race' if row['expected'] else 'clean'}. "
        f"{row['reason_to_differ']}"
        for name in stored
        for row in rows(name, "file")
        if row["outcome"] == DIFFERENT
    ]
    return "\n".join(["Disputed labels:", "", *lines]) if lines else ""
