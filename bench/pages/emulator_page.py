"""The figures of docs/emulator.md, made from results.

python -m bench.pages.emulator_page [--save]
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean

from bench.pages.sections import (
    DOCS,
    conformance_gpu,
    filled_page,
    rows,
    run_page,
    source_of,
    table,
)
from bench.pages.suite_tables import suite_tables
from bench.results import Row
from bench.speed.emulator import checked_over_plain

PAGE = DOCS / "emulator.md"
TIMED_PRESETS = ("wmma:stage2", "wmma:fragments", "scalar:vec")
Line = tuple[str, str, str]  # description, figure, result


def summary(name: str) -> Row:
    return rows(name, "summary")[0]


def figures() -> str:
    """Each figure with the result that holds it."""
    lines = [*album_lines(), *random_lines(), *apart_lines(), *gpu_lines(), *speed_lines()]
    return table(
        ("what", "figure", "from"),
        [(description, figure, source_of(name)) for description, figure, name in lines],
    )


def album_lines() -> list[Line]:
    planted = summary("planted")
    return [
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
            "correct kernels of the album that pass",
            f"{planted['passed']} of {planted['right']}",
            "planted",
        ),
    ]


def random_lines() -> list[Line]:
    alarms, mutants = summary("false_alarms"), summary("mutants")
    outcomes = mutants["outcomes"]
    rejected = sum(count for name, count in outcomes.items() if name.startswith("rejected"))
    return [
        (
            "random correct candidates with a false alarm",
            (
                f"{alarms['candidates_with_an_alarm']} of {alarms['candidates']}, "
                f"in {alarms['checked_runs']:,} checked runs"
            ),
            "false_alarms",
        ),
        (
            "mutated twins of random correct candidates, rejected",
            f"{rejected} of {mutants['mutants']}",
            "mutants",
        ),
        ("... equivalent to their originals", str(outcomes.get("equivalent", 0)), "mutants"),
        ("... **missed**", str(outcomes.get("missed", 0)), "mutants"),
    ]


def apart_lines() -> list[Line]:
    groups = summary("order_apart")["groups"]
    wrong = groups["album, wrong"]
    right = [group for name, group in groups.items() if name != "album, wrong"]
    return [
        (
            "wrong kernels for Hopper that a second checker judges as the emulator does",
            (
                f"{wrong['both_find'] + wrong['both_clean']} of {wrong['judged']}; "
                f"{wrong['explained']} others explained"
            ),
            "order_apart",
        ),
        (
            "correct kernels for Hopper, of the album and at random, that both accept",
            (
                f"{sum(group['both_clean'] for group in right)} of "
                f"{sum(group['judged'] for group in right)}"
            ),
            "order_apart",
        ),
    ]


def gpu_lines() -> list[Line]:
    conformance, (agreement,) = summary("gpu_conformance"), rows("gpu_check", "agreement")
    candidates = agreement["candidates"]
    return [
        (
            f"primitives compared with an {conformance_gpu()} bit for bit",
            (
                f"{conformance['equal']} equal, "
                f"{conformance['within bounds']} within PTX's bounds, "
                f"{conformance['different']} different"
            ),
            "gpu_conformance",
        ),
        (
            "attention candidates green here and correct on an H200",
            f"{candidates - agreement['green_but_wrong_on_gpu']} of {candidates}",
            "gpu_check",
        ),
    ]


def speed_lines() -> list[Line]:
    speed = {(row["preset"], row["build"]): row for row in rows("emulator") if "preset" in row}
    lines = []
    for preset in TIMED_PRESETS:
        plain, checked = speed[preset, "plain"], speed[preset, "checked"]
        slower = plain["gflop_per_cpu_s"] / checked["gflop_per_cpu_s"]
        lines.append(
            (
                f"`{preset}` on {plain['workers']} cores, GFLOP/s plain and checked",
                (
                    f"{plain['gflop_per_s']} and {checked['gflop_per_s']} "
                    f"({slower:.1f} times the CPU time)"
                ),
                "emulator",
            )
        )
    ratios = checked_over_plain(rows("emulator"))
    least, most = min(ratios.values()), max(ratios.values())
    lines.append(
        (
            f"a checked run's CPU time over a plain run's, mean of {len(ratios)} presets",
            f"{mean(ratios.values()):.2f} ({least:.2f} to {most:.2f})",
            "emulator",
        )
    )
    compile_s = sorted(row["compile_s"] for row in speed.values())
    median_s = compile_s[len(compile_s) // 2]
    return [*lines, ("compiling a candidate, median", f"{median_s:.2f} s", "emulator")]


def pages() -> dict[Path, str]:
    """The page as the results make it."""
    sections = {"figures": figures, "suites": suite_tables}
    return {PAGE: filled_page(PAGE, "emulator_page", sections)}


if __name__ == "__main__":
    run_page(__doc__, pages)
