"""The table of docs/search.md: evaluations that strategies need, cold.

    python -m bench.pages.search_page [--save]

tests/unit/test_search_page.py compares the page with the result.
"""

from __future__ import annotations

from pathlib import Path

from bench.pages.sections import DOCS, filled_page, rows, run_page, source_of, table
from bench.results import Row, find_result

PAGE = DOCS / "search.md"
RESULT = "search_quality"
TITLES = ("space", "strategy", "searches", "of", "10 %", "5 %", "1 %", "score P")


def figures() -> str:
    measured = [row for row in rows(RESULT) if "space" in row]
    text = table(TITLES, [_line(row) for row in measured])
    if not measured:
        return text
    version = next((row["version"] for row in rows(RESULT, "kernel_tuner")), "")
    others = f"; Kernel Tuner {version} in its simulation mode" if version else ""
    date = find_result(RESULT)["environment"]["date"]
    return f"{text}\n\n{date}{others}; {source_of(RESULT)}."


def _line(row: Row) -> tuple[object, ...]:
    return (
        row["space"],
        row["strategy"].replace("kernel_tuner ", "Kernel Tuner: "),
        row["searches"],
        row["budget"],
        *(_quartiles(row[f"to_{share}_percent"]) for share in (10, 5, 1)),
        "" if row["score"] is None else f"{row['score']:.2f}",
    )


def _quartiles(counts: list[float | None]) -> str:
    low, middle, high = ("-" if count is None else f"{count:.0f}" for count in counts)
    return middle if middle == "-" else f"{middle} [{low}, {high}]"


def pages() -> dict[Path, str]:
    return {PAGE: filled_page(PAGE, "search_page", {"figures": figures})}


if __name__ == "__main__":
    run_page(__doc__, pages)
