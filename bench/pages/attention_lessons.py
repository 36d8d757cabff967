"""Tables of docs/attention.md about the first prototype's kernels and their lessons."""

from __future__ import annotations

from collections.abc import Callable

from bench.pages.figures import figure, interval
from bench.pages.sections import NOT_YET, rows, table
from bench.results import Row


def prototypes() -> str:
    """The prototype's kernels, timed on an L4, and the presets that correspond to them."""
    lines = [
        (
            row["name"],
            row["idea"],
            f"{row['us']:g}" if row["us"] else "",
            row.get("right", ""),
            figure(row.get("registers")),
            figure(row.get("smem_kb")),
            f"`{row['now']}`",
        )
        for row in rows("seeds", "kernel")
    ]
    return table(
        ("kernel", "idea", "us on the L4", "correct", "registers", "KB shared", "here"), lines
    )


def lessons() -> str:
    """Each lesson of the prototype with the pairs of candidates that repeat it on an H200."""
    measured, emulated = rows("h200/attention_lessons"), rows("attention_lessons_emulator")
    lines = []
    for lesson in rows("seeds", "lesson"):
        first = (f"**{lesson['lesson']}**", lesson["hoped"], lesson["found"])
        for pair in lesson["pairs"]:
            for row in [row for row in measured if row["lesson"] == pair] or [None]:
                lines.append((*first, pair, *_pair_cells(row, pair, emulated)))
                first = ("", "", "")
    titles = (
        "lesson",
        "hoped",
        "found on the L4",
        "here",
        "workload",
        "time ratio on the H200",
        "decision",
        "bank conflicts",
        "registers",
    )
    return table(titles, lines)


def _pair_cells(row: Row | None, pair: str, emulated: list[Row]) -> tuple[str, ...]:
    """Workload, ratio (or why there is none), decision, bank conflicts and registers of a pair."""
    workload = row["workload"] if row else "mission"
    key = (pair, workload)
    counted = next((item for item in emulated if (item["lesson"], item["workload"]) == key), None)
    on_gpu, on_emulator = (
        item if item and "base_figures" in item else None for item in (row, counted)
    )
    registers = _change(on_gpu or on_emulator, lambda figures: figures.get("registers"))
    factor = _change(on_emulator, lambda figures: figures.get("conflict_factor"))
    counters = _change(on_gpu, _bank_conflicts)
    conflicts = "; ".join(
        filter(
            None, (factor and f"factor {factor} (emulator)", counters and f"{counters} (Nsight)")
        )
    )
    if row is None:
        return workload, NOT_YET, "", conflicts, registers
    if "ratio" not in row:
        return workload, row.get("wrong") or row.get("unavailable", ""), "", conflicts, registers
    return (
        workload,
        f"{row['ratio']:.4f} {interval(row['interval'], 4)}",
        row["decision"].replace("_", " "),
        conflicts,
        registers,
    )


def _change(row: Row | None, value_of: Callable[[Row], float | None]) -> str:
    """`before to after`; empty if either is missing."""
    if row is None:
        return ""
    before, after = value_of(row["base_figures"]), value_of(row["changed_figures"])
    return f"{figure(before)} to {figure(after)}" if None not in (before, after) else ""


def _bank_conflicts(figures: Row) -> float | None:
    launches = figures.get("profile")
    return launches[0]["shared_bank_conflicts"] if isinstance(launches, list) and launches else None
