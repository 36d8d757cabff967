"""`greenfast bench`: presets or stored trials, timed again side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from greenfast.app.cli.options import AsJson, Seed, Target, Workloads
from greenfast.app.cli.output import (
    console,
    microseconds,
    print_json,
    ratio_in_band,
    styled,
    table,
)
from greenfast.app.cli.services import opened_services
from greenfast.app.views.terminal import say

if TYPE_CHECKING:
    from greenfast.app.cli.bench_run import JSON


def bench(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="CANDIDATE...",
            help="KERNEL/TEMPLATE:PRESET, a trial as SEARCH/NUMBER, or a search for its best.",
        ),
    ],
    workload: Workloads = None,
    target: Target = None,
    seed: Seed = None,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode",
            metavar="MODE",
            help="The state of the caches for measured times: hot, cold or auto.",
        ),
    ] = None,
    repeat: Annotated[
        int,
        typer.Option(
            "--repeat", metavar="N", min=1, max=1000, help="Repeat the measurement N times."
        ),
    ] = 1,
    as_json: AsJson = False,
) -> int:
    """Time candidates again, side by side. The others are compared with the first.

    Each passes through all gates, so no wrong candidate is timed. A trial runs with the files of
    its search, and by default on its workloads and target. Nothing is stored.

    Example: `greenfast bench attention/wmma:stage2 attention/wmma:flashcore_a --target cuda:0`.

    Exit codes: 0 all are correct, 1 one is rejected, 3 a fault prevented a verdict.
    """
    from greenfast.app.cli.bench_run import BenchRequest, exit_code, prepare_bench, run_bench

    request = BenchRequest(tuple(names), tuple(workload or ()), target, seed, repeat, mode)
    with opened_services() as services:
        prepared = prepare_bench(services, request)
        rows = list(run_bench(prepared, _say_row))
        plan = prepared.plan
    if as_json:
        print_json(
            {
                "kernel": plan.kernel,
                "workloads": list(plan.workloads),
                "target": plan.target,
                "seed": plan.seed,
                "rows": rows,
            }
        )
        return exit_code(rows)
    show(rows, f"{plan.kernel} {', '.join(plan.workloads)} on {plan.target}, seed {plan.seed}")
    return exit_code(rows)


def _say_row(row: JSON) -> None:
    time = microseconds(row["time_median_us"], row["time_kind"], row["time_mode"])
    say(f"{row['candidate']}: {row['verdict']}, {time}")
    if row["verdict"] in ("rejected", "faulted"):
        say(f"  {row['sentence']}")
    if row["same_source"] is False:
        say(f"  its source differs from the one that {row['candidate']} ran with")


def show(rows: Sequence[JSON], title: str) -> None:
    """Print a row for each candidate and round."""
    rounds = len({row["round"] for row in rows}) > 1
    workloads = list(dict.fromkeys(timing["workload"] for row in rows for timing in row["timings"]))
    several = workloads if len(workloads) > 1 else []
    titles = ["candidate", "design", "verdict", "time", "ratio to the first", *several]
    cells = []
    for row in rows:
        by_workload = {timing["workload"]: timing["time_median_us"] for timing in row["timings"]}
        cells.append(
            [
                *([row["round"]] if rounds else []),
                row["candidate"],
                row["design"],
                styled(row["verdict"]),
                microseconds(row["time_median_us"], row["time_kind"], row["time_mode"]),
                _ratio(row),
                *(microseconds(by_workload.get(workload)) for workload in several),
            ]
        )
    console().print(table([*(["round"] if rounds else []), *titles], cells, title=title))


def _ratio(row: JSON) -> str:
    if row["is_first"]:
        return "1"
    if row["ratio_interval"] and row["ratio_to_baseline"] is not None:
        low, high = row["ratio_interval"]
        return f"{row['ratio_to_baseline']:.3f} [{low:.3f}, {high:.3f}]"
    return ratio_in_band(row["ratio_to_baseline"], row["time_kind"], row["band"])
