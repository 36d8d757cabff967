"""`greenfast judge`: a source of your own for a kernel that greenfast knows, through all gates."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from greenfast.app.cli.options import AsJson, Kernel, Seed, Target, Workloads
from greenfast.app.cli.output import print_json
from greenfast.app.cli.services import opened_services
from greenfast.search.errors import UsageError
from greenfast.search.kernels.author_files import read_author_file
from greenfast.search.text import one_line

EXIT_CODES = {"accepted": 0, "green": 0, "rejected": 1}
Entry = Annotated[
    str,
    typer.Option(
        "--entry", metavar="NAME", help="The kernel function, for launches that name none."
    ),
]
Launch = Annotated[
    Path,
    typer.Option(
        "--launch",
        metavar="FILE",
        help="A .toml of its launches; `greenfast docs submissions` describes it.",
    ),
]
Author = Annotated[str, typer.Option("--author", metavar="TEXT", help="Who wrote the source.")]
Model = Annotated[str, typer.Option("--model", metavar="TEXT", help="The program that wrote it.")]
Parent = Annotated[
    str,
    typer.Option("--parent", metavar="DIGEST", help="The stored source that it was made from."),
]
Hypothesis = Annotated[
    str, typer.Option("--hypothesis", metavar="TEXT", help="Why it should be faster.")
]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="CANDIDATE",
        help="The candidate to compare with: TEMPLATE:PRESET, champion, or none.",
    ),
]


def judge(
    kernel: Kernel,
    file: Annotated[
        Path, typer.Argument(metavar="FILE.cu", help="The CUDA source; - reads stdin.")
    ],
    launch: Launch,
    entry: Entry = "",
    workload: Workloads = None,
    target: Target = None,
    baseline: Baseline = None,
    seed: Seed = None,
    author: Author = "",
    model: Model = "",
    parent: Parent = "",
    hypothesis: Hypothesis = "",
    as_json: AsJson = False,
) -> int:
    """Test your own source with all gates of a kernel, with feedback by line.

    The trial is stored like any other. The same source with the same launches is judged only once
    in a scope; later, the stored verdict is returned.

    Exit codes: 0 correct, 1 rejected, 2 the source or its launches cannot be judged, 3 a fault of
    greenfast or of the machine, 130 Ctrl-C.
    """
    from greenfast.app.cli.judge_here import judged_here
    from greenfast.app.cli.search_run import EXIT_FAILED, EXIT_INTERRUPTED
    from greenfast.app.service.worker import Stop
    from greenfast.app.views.submitting import JudgeRequest
    from greenfast.search.loop.submitted import Submission

    submission = Submission(
        kernel,
        _text_of(file, "the source"),
        _text_of(launch, "the launch file"),
        entry,
        author,
        model,
        parent,
        hypothesis,
    )
    request = JudgeRequest(
        submission, tuple(workload) if workload else None, target, baseline, seed
    )
    with opened_services() as services:
        stop = Stop(services.settings.drain_s, on_force=services.interrupt)
        stop.on_signals()
        result = judged_here(services, request, stop)
    if result is None:
        return EXIT_INTERRUPTED
    if as_json:
        print_json(result)
    else:
        for line in report_lines(result, file.name):
            print(line)
    return EXIT_CODES.get(result["verdict"] or "", EXIT_FAILED)


def _text_of(path: Path, what: str) -> str:
    if str(path) == "-":
        return sys.stdin.buffer.read(1 << 20).decode("utf-8", "surrogateescape")
    if not os.path.exists(path):
        raise UsageError(f"{what} {path} does not exist", code="missing_file")
    return read_author_file(path, what)


def report_lines(report: dict[str, Any], file_name: str) -> list[str]:
    """The report for a person; no text of the author reaches the terminal as it is."""
    verdict = report["verdict"] or report["status"]
    lines = [
        f"{verdict}: {report['kernel']} {', '.join(report['workloads'])} on {report['target']}"
    ]
    if report["repeated"]:
        lines.append("answered from the store: this source was judged before in the same scope")
    if not report["verdict"] and report["why"]:
        lines.append(report["why"])
    for item in report["feedback"]:
        lines.append(f"- {item['sentence']}")
        for place in item["lines"]:
            name = file_name if place["file"] == "source" else place["file"]
            lines.append(f"    {place['role']} {name}:{place['line']}: {place['text']}")
        lines += [f"    {word}" for word in item.get("character", ())]
        if item["try"]:
            lines.append(f"    try: {item['try']}")
    if report["trial"] is not None:
        lines.append(
            f"stored as trial {report['id']}/{report['trial']}; "
            f"`greenfast show {report['id']}/{report['trial']}` has the evidence"
        )
    return [
        one_line(line) if not line.startswith("    ") else "    " + one_line(line) for line in lines
    ]
