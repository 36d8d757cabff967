"""One trial on a terminal: its sentence, gates, figures, and the commands that show more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from greenfast.app.cli.output import (
    console,
    duration,
    microseconds,
    panel_width,
    ratio_in_band,
    styled,
    table,
    text,
)
from greenfast.app.views.stage_times import stage_words

JSON = dict[str, Any]
MOST_LIMITS = 3  # the limiting resource and the next two
LEAST_SHARE = 0.005  # of the issued instructions, for a class to be named


def show_trial(report: JSON, title: str, further: Iterable[str] = ()) -> None:
    """Print a panel with the sentence, the gates, and the figures.

    `further`: lines that name commands which show more.
    """
    gates = table(
        ("gate", "outcome", ""),
        [
            (gate, styled(result["outcome"]), result["sentence"])
            for gate, result in report["gates"].items()
        ],
    )
    lines: list[RenderableType] = [
        text(report["sentence"]),
        text(""),
        gates,
        text(""),
        _figures(report),
    ]
    for timing in report["gates"].get("performance", {}).get("timings", ()):
        lines += [text(""), *_modelled(timing)] if timing["limits"] else []
    if report["log"]:
        lines += [text(""), text(report["log"])]
    out = console()
    out.print(
        Panel(
            Group(*lines),
            title=text(f" {title} "),
            subtitle=styled(report["verdict"]),
            title_align="left",
            subtitle_align="right",
            width=panel_width(out),
        )
    )
    for line in further:  # a command is not folded, so that it can be copied
        out.print(text(line), soft_wrap=True)


def _figures(report: JSON) -> Table:
    ptxas, correctness, performance = (
        report["gates"].get(name, {}) for name in ("ptxas", "correctness", "performance")
    )
    rows = [
        ("verdict", styled(report["verdict"])),
        ("stage", report["stage"]),
        ("reason", report["reason"]),
        ("time", microseconds(report["time_median_us"], report["time_kind"], report["time_mode"])),
        (
            "ratio to baseline",
            ratio_in_band(
                report["ratio_to_baseline"], report["time_kind"], performance.get("band")
            ),
        ),
        ("registers", ptxas.get("registers")),
        ("spills", _bytes(ptxas.get("spill_bytes"))),
        ("shared memory", _shared_memory(ptxas)),
        ("assembler", _notes(ptxas)),
        ("largest absolute error", _three_digits(correctness.get("max_abs_error"))),
        ("source", report["source_digest"]),
        ("took", _took(report)),
    ]
    figures = table(("", ""), [row for row in rows if row[1] not in (None, "-")])
    figures.show_header = False
    return figures


def _took(report: JSON) -> str:
    """The whole and its stages: `4.2 s: compile 812 ms, correctness 1.9 s`."""
    stages = stage_words(report["stage_seconds"])
    return duration(report["duration_s"]) + (f": {stages}" if stages else "")


def _modelled(timing: JSON) -> list[Text | Table]:
    """The resources that a modelled time goes into, and the instructions that the warps issue."""
    longest = list(timing["limits"].items())[:MOST_LIMITS]
    limits = table(
        (timing["workload"], "alone"),
        [(name, microseconds(us, timing["time_kind"])) for name, us in longest],
    )
    issued = sum(timing["mix"].values())
    mix = ", ".join(
        f"{count / issued:.0%} {name}"
        for name, count in timing["mix"].items()
        if count >= LEAST_SHARE * issued
    )
    return [
        text(f"limited by {listed([name for name, _ in longest])}"),
        limits,
        text(f"{issued:,.0f} warp instructions: {mix}" if issued else ""),
    ]


def listed(limits: Sequence[str]) -> str:
    """`latency, then shared memory and integer`."""
    first, *rest = limits
    return f"{first}, then {' and '.join(rest)}" if rest else first


def _three_digits(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"


def _bytes(value: int | None) -> str | None:
    return None if value is None else f"{value} bytes"


def _notes(ptxas: JSON) -> str | None:
    """The assembler's remarks on products and register budgets."""
    return (
        "\n".join(f"{note['code']}: {note['sentence']}" for note in ptxas.get("notes", ())) or None
    )


def _shared_memory(ptxas: JSON) -> str | None:
    if "smem_static_bytes" not in ptxas:
        return None
    return f"{ptxas['smem_static_bytes']} static + {ptxas['smem_dynamic_bytes']} dynamic bytes"
