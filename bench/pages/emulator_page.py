"""The figures of docs/emulator.md, made from bench/results/: `python -m bench.pages.emulator_page --save` writes them into the page."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "emulator.md"
BEGIN, END = "<!-- figures: begin (bench/pages/emulator_page.py) -->", "<!-- figures: end -->"


def rows(name: str) -> list[dict]:
    return json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text())["rows"]


def summary(name: str) -> dict:
    return next(row for row in rows(name) if row.get("what") == "summary")


def table() -> str:
    """A Markdown table: what, figure, and the file it stands in."""
    planted, alarms, mutants = summary("planted"), summary("false_alarms"), summary("mutants")
    conformance = summary("gpu_conformance")
    agreement = next(row for row in rows("gpu_check") if row["what"] == "agreement")
    outcomes = mutants["outcomes"]
    rejected = sum(count for name, count in outcomes.items() if name.startswith("rejected"))
    lines = [
        (
            "kernels of the album with a planted fault, caught by the gate and reason it names",
            f"{planted['caught_as_named']} of {planted['broken']}",
            "planted",
        ),
        (
            "... of which only `safety` saw the fault",
            str(planted["caught_by"].get("safety", 0)),
            "planted",
        ),
        (
            "right kernels of the album that pass",
            f"{planted['passed']} of {planted['right']}",
            "planted",
        ),
        (
            "random right candidates with a false alarm",
            f"{alarms['candidates_with_an_alarm']} of {alarms['candidates']}, in {alarms['checked_runs']:,} checked runs",
            "false_alarms",
        ),
        (
            "mutated twins of random right candidates, rejected",
            f"{rejected} of {mutants['mutants']}",
            "mutants",
        ),
        ("... equivalent to their originals", str(outcomes.get("equivalent", 0)), "mutants"),
        ("... **missed**", str(outcomes.get("missed", 0)), "mutants"),
        (
            "primitives compared with an H200 bit for bit",
            f"{conformance['equal']} equal, {conformance['within bounds']} within PTX's bounds, "
            f"{conformance['different']} different",
            "gpu_conformance",
        ),
        (
            "attention candidates green here and right on an H200",
            f"{agreement['candidates'] - agreement['green_but_wrong_on_gpu']} of {agreement['candidates']}",
            "gpu_check",
        ),
    ]
    speed = {(row["preset"], row["build"]): row for row in rows("emulator") if "preset" in row}
    for preset in ("wmma:stage2", "wmma:fragments", "scalar:vec"):
        plain, checked = speed[preset, "plain"], speed[preset, "checked"]
        lines.append(
            (
                f"`{preset}` on {plain['workers']} cores, GFLOP/s plain and checked",
                f"{plain['gflop_per_s']} and {checked['gflop_per_s']} "
                f"({plain['gflop_per_cpu_s'] / checked['gflop_per_cpu_s']:.1f} times the CPU time)",
                "emulator",
            )
        )
    compile_s = sorted(one["compile_s"] for one in speed.values())
    lines.append(
        ("compiling a candidate, median", f"{compile_s[len(compile_s) // 2]:.2f} s", "emulator")
    )
    body = "\n".join(
        f"| {what} | {figure} | `bench/results/{file}.json` |" for what, figure, file in lines
    )
    return f"| what | figure | from |\n|---|---|---|\n{body}"


def page_with(text: str) -> str:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


if __name__ == "__main__":
    if "--save" in sys.argv:
        PAGE.write_text(page_with(table()))
    else:
        print(table())
