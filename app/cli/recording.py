"""`greenfast recording`: the contents of a recorded sweep."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from statistics import geometric_mean
from typing import Annotated

import typer

from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import console, microseconds, print_json, table
from greenfast.app.settings import Settings
from greenfast.search.recordings.contents import Recording, Row, checks_digest
from greenfast.search.recordings.rules import time_us
from greenfast.search.recordings.shelf import find_recording
from greenfast.search.verdict import Reason

FASTEST = 5


def recording(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A recording, with or without the prefix replay:; `greenfast targets` lists them.",
        ),
    ],
    as_json: AsJson = False,
) -> int:
    """Show the contents of a recording: space, device, verdicts, fastest candidates.

    `--target replay:NAME` answers from it in `greenfast search` and `greenfast trial`.
    """
    from greenfast.app.wiring import Services

    contents = find_recording(name.removeprefix("replay:"))
    kernel = Services(Settings.from_environment()).catalogue.kernel(contents.heading.kernel)
    same_checks = checks_digest(kernel) == contents.heading.checks_digest
    checks = "the same as today's" if same_checks else "not the same as today's"
    fastest = sorted(
        (row for row in contents.rows if row.times and row.reason != Reason.IMPLAUSIBLE),
        key=lambda row: geometric_mean([time_us(times) for times in row.times]),
    )[:FASTEST]
    verdicts = Counter(
        f"{row.stage}: {row.reason}" if row.stage else "faster" for row in contents.rows[1:]
    )
    if as_json:
        print_json(_json(contents, checks, verdicts, fastest))
    else:
        _show(contents, checks, verdicts, fastest)
    return 0


def _json(
    contents: Recording, checks: str, verdicts: Counter[str], fastest: list[Row]
) -> dict[str, object]:
    heading = contents.heading
    return {
        "name": heading.name,
        "kernel": heading.kernel,
        "template": heading.template,
        "workloads": list(contents.workload_names()),
        "baseline": heading.baseline,
        "space": {key: list(values) for key, values in heading.lattice},
        "candidates": heading.candidates,
        "timed": heading.timed,
        "complete": heading.complete,
        "verdicts": dict(verdicts),
        "device": heading.device.title,
        "environment": dict(heading.environment),
        "protocol": asdict(heading.protocol),
        "checks": checks,
        "recorded_at": heading.recorded_at,
        "sha256": contents.sha256,
        "fastest": [
            {
                "parameters": dict(contents.parameters(row)),
                "time_us": [time_us(times) for times in row.times],
                "time_kind": "replayed",
                "time_modes": [times.mode for times in row.times],
            }
            for row in fastest
        ],
    }


def _show(contents: Recording, checks: str, verdicts: Counter[str], fastest: list[Row]) -> None:
    heading, out = contents.heading, console()
    workloads = ", ".join(contents.workload_names())
    incomplete = "" if heading.complete else "; incomplete"
    tally = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    facts = [
        ("candidates", f"{heading.candidates}, {heading.timed} timed{incomplete}"),
        ("of", f"{heading.kernel} {heading.template} on {workloads}"),
        ("baseline", heading.baseline),
        ("checks", checks),
        ("verdicts", tally),
        ("recorded", f"{heading.recorded_at} on {heading.device.title}"),
        ("sha256", contents.sha256),
    ]
    out.print(table(("", ""), facts))
    space = [(key, ", ".join(map(str, values))) for key, values in heading.lattice]
    out.print(table(("space", "values"), space))
    out.print(table(("environment", ""), [*heading.environment, *asdict(heading.protocol).items()]))
    fixed = {key for key, values in heading.lattice if len(values) == 1}
    out.print(
        table(
            ("fastest", "parameters"),
            [
                (
                    ", ".join(
                        microseconds(time_us(times), "replayed", times.mode) for times in row.times
                    ),
                    " ".join(
                        f"{key}={value}"
                        for key, value in contents.parameters(row)
                        if key not in fixed
                    ),
                )
                for row in fastest
            ],
        )
    )
