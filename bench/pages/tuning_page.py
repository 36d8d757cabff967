"""The table of docs/tuning.md: how good a table of `tune` is between the measured sizes.

    python -m bench.pages.tuning_page [--save]

tests/unit/test_tuning_page.py compares the page with the results of bench.gpu.table_regret.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, fsum, log
from pathlib import Path

from bench.pages.sections import DOCS, filled_page, rows, run_page, source_of, table
from bench.results import Row

PAGE = DOCS / "tuning.md"
RESULTS = ("h200/table_regret", "h100/table_regret")
TITLES = (
    "GPU",
    "kernel",
    "users",
    "number",
    "workloads",
    "time / the best kernel's",
    "at worst",
    "slower than PyTorch",
    "time / PyTorch's",
)


def pages() -> dict[Path, str]:
    return {PAGE: filled_page(PAGE, "tuning_page", {"regret": regret})}


def regret() -> str:
    lines = [line for name in RESULTS for line in _lines(name)]
    results = " and ".join(map(source_of, RESULTS))
    return f"{table(TITLES, lines)}\n\n{_foretold()} {results}."


def _lines(name: str) -> list[Sequence[object]]:
    """A line for each sort of user, with its types together, and one for all sorts of a kernel."""
    gpu, stored = name.partition("/")[0].upper(), rows(name)
    lines: list[Sequence[object]] = []
    for kernel in dict.fromkeys(row["kernel"] for row in stored):
        own = [row for row in stored if row["kernel"] == kernel]
        for sort in (*dict.fromkeys(row["users"] for row in own), ""):
            some = [row for row in own if sort in ("", row["users"])]
            lines.append((gpu, kernel, sort or "**all**", *_cells(some)))
    return lines


def _cells(some: Sequence[Row]) -> tuple[str, ...]:
    def before_and_after(*means: float) -> str:
        return " → ".join(f"{mean:.3f}" for mean in means)

    shares = [_mean(some, name, "slower") for name in ("alone", "waves", "library")]
    return (
        f"{sum(row['number'] for row in some):,}",
        f"{fsum(row['number'] * row['workloads'] for row in some) / _number(some):.1f}",
        before_and_after(*(_geometric(some, name, "regret") for name in ("alone", "waves"))),
        before_and_after(*(_geometric(some, name, "worst") for name in ("alone", "waves"))),
        " → ".join(f"{100 * share:.0f} %" for share in shares),
        before_and_after(*(_geometric(some, name, "of_library") for name in ("alone", "library"))),
    )


def _foretold() -> str:
    stored = [row for name in RESULTS for row in rows(name)]
    stated, seen = (
        exp(fsum(row["number"] * log(row[name]) for row in stored) / _number(stored))
        for name in ("left_out_foretells", "then_seen")
    )
    return (
        "Leaving each workload out once foretold "
        f"{stated:.3f} of the best kernel's time on average; the later sizes took {seen:.3f}."
    )


def _number(some: Sequence[Row]) -> int:
    return sum(int(row["number"]) for row in some)


def _mean(some: Sequence[Row], name: str, figure: str) -> float:
    return fsum(row["number"] * row["tables"][name][figure] for row in some) / _number(some)


def _geometric(some: Sequence[Row], name: str, figure: str) -> float:
    logs = (row["number"] * log(row["tables"][name][figure]) for row in some)
    return exp(fsum(logs) / _number(some))


if __name__ == "__main__":
    run_page(__doc__, pages)
