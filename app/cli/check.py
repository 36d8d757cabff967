"""`greenfast check` and `greenfast album`: is it right by luck? Findings with their lines, for people and programs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from greenfast.app.cli.check_run import CheckOutcome, check_candidate, check_file, check_json
from greenfast.app.cli.output import console, print_json, table
from greenfast.app.cli.sarif import sarif_text
from greenfast.app.cli.trial import (
    AsJson,
    Output,
    Seed,
    Target,
    Workloads,
    require_folder,
    write_text,
)
from greenfast.app.cli.trial_run import TrialRequest
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services
from greenfast.search.diagnose.album import Entry, Judged, catalogue_of, entries, judge
from greenfast.search.errors import UsageError
from greenfast.search.loop.plan import DEFAULT_TARGET
from greenfast.search.text import file_line, visible
from greenfast.search.verdict import LineCost, SafetyFinding

EXIT_CLEAN, EXIT_FINDINGS = 0, 1
LINES_AROUND = 1
MOST_LINES = 12  # of costs, for a person
IMPATIENT_S = 3.0  # the deadline of a run that is expected not to end


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"


def add_check_commands(app: typer.Typer) -> None:
    app.command("check")(check)
    app.command("album")(album)


def check(
    what: Annotated[
        str, typer.Argument(metavar="KERNEL | FILE.cu", help="A kernel's name, or your own file.")
    ],
    template: Annotated[
        str | None, typer.Option("--template", help="Template of KERNEL to render.")
    ] = None,
    preset: Annotated[str | None, typer.Option("--preset", help="Start from this preset.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change one parameter.")
    ] = None,
    workload: Workloads = None,
    launch: Annotated[
        Path | None,
        typer.Option("--launch", metavar="LAUNCH.toml", help="Buffers and launches of FILE.cu."),
    ] = None,
    target: Target = None,
    seed: Seed = None,
    form: Annotated[
        Format, typer.Option("--format", help="How to write the report.")
    ] = Format.TEXT,
    output: Output = None,
    as_json: AsJson = False,
) -> int:
    """Look for races, reads of what was never written and accesses out of bounds. Exits 0 when clean, 1 on findings."""
    require_folder(output)
    form = Format.JSON if as_json else form
    services = Services(Settings.from_environment())
    try:
        if launch is not None or what.endswith(".cu"):
            _refuse_options(template, preset, settings, workload)
            outcome = check_file(services, Path(what), _launch_of(what, launch), target, seed)
        else:
            if template is None:
                raise UsageError(
                    "check KERNEL needs --template",
                    code="bad_command_line",
                    mend=f"`greenfast templates {what}` lists them; FILE.cu needs --launch LAUNCH.toml",
                )
            request = TrialRequest(
                what, template, preset, tuple(settings or ()), tuple(workload or ()), target, seed
            )
            outcome = check_candidate(services, request)
    finally:
        services.close()
    show(outcome, form, output)
    return EXIT_FINDINGS if outcome.report.findings else EXIT_CLEAN


def _launch_of(what: str, launch: Path | None) -> Path:
    if launch is None:
        raise UsageError(
            f"check {what} needs --launch LAUNCH.toml, which says how to launch it",
            code="bad_command_line",
            mend="docs/emulator.md shows one",
        )
    return launch


def _refuse_options(*options: object) -> None:
    if any(options):
        raise UsageError(
            "--template, --preset, --set and --workload are for kernels of the catalogue, not for a file",
            code="bad_command_line",
        )


def show(outcome: CheckOutcome, form: Format, output: Path | None) -> None:
    if form is Format.TEXT:
        if output is not None:
            write_text(output, "\n".join(report_lines(outcome)) + "\n")
            return
        for line in report_lines(outcome):
            print(visible(line))
        show_costs(outcome)
    elif form is Format.SARIF:
        write_text(output, sarif_text(outcome)) if output is not None else print(
            sarif_text(outcome), end=""
        )
    else:
        print_json(check_json(outcome))


def report_lines(outcome: CheckOutcome) -> Iterator[str]:
    """Findings, each with both its lines as they stand in the author's file."""
    report = outcome.report
    yield f"{outcome.what} on {outcome.target}"
    for number, one in enumerate(report.findings, 1):
        times = f", {one.count} times" if one.count > 1 else ""
        yield ""
        yield f"{number}. {one.kind}{times}: {one.sentence}"
        yield from _excerpts(one, outcome)
    yield ""
    orders = ", ".join(dict.fromkeys(run.order.partition(":")[0] for run in report.runs))
    found = f"{len(report.findings)} findings" if len(report.findings) != 1 else "1 finding"
    yield f"{found if report.findings else 'nothing found'} in {len(report.runs)} runs ({orders} order)"
    yield "looked for " + ", ".join(report.looked_for)


def _excerpts(finding: SafetyFinding, outcome: CheckOutcome) -> Iterator[str]:
    words = {finding.where: "here"}
    if finding.other_where is not None:
        words[finding.other_where] = (
            "against this" if finding.other_where != finding.where else "here, by two threads"
        )
    for where, word in words.items():
        if where is None or where[0] not in outcome.files:
            continue
        lines = outcome.files[where[0]].read_text("utf-8", "replace").splitlines()
        yield f"   {file_line(*where)} {word}"
        first, last = max(1, where[1] - LINES_AROUND), min(len(lines), where[1] + LINES_AROUND)
        for number in range(first, last + 1):
            yield f"   {'>' if number == where[1] else ' '} {number:5d} | {lines[number - 1]}"


def show_costs(outcome: CheckOutcome) -> None:
    """The dearest lines of shared and of global memory."""
    for is_shared, unit, factor in (
        (True, "wavefronts", "conflict factor"),
        (False, "sectors", "sectors / ideal"),
    ):
        costs = [cost for cost in outcome.report.costs if cost.is_shared is is_shared]
        if not costs:
            continue
        print()
        rows = [_cost_row(cost, outcome) for cost in costs[:MOST_LINES]]
        console().print(
            table(
                ("line", "", "instructions", unit, factor, "source"),
                rows,
                title=f"{'shared' if is_shared else 'global'} memory by line, {outcome.report.counted}",
            )
        )


def _cost_row(one: LineCost, outcome: CheckOutcome) -> tuple[object, ...]:
    path = outcome.files.get(one.file)
    lines = path.read_text("utf-8", "replace").splitlines() if path else []
    text = lines[one.line - 1].strip() if 0 < one.line <= len(lines) else one.file
    line = file_line(one.file.rpartition("/")[2], one.line) if len(outcome.files) > 1 else one.line
    return (
        line,
        one.kind.partition("_")[2],
        one.instructions,
        one.transactions,
        f"{one.factor:.2f}",
        text[:70],
    )


def album(
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="TEXT", help="Entries whose kernel or name holds TEXT."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Run the album of ways to fail: each entry must be caught as it says. Exits 1 when one is not."""
    services = Services(Settings.from_environment())
    try:
        wanted = [
            entry for entry in entries() if not only or only in f"{entry.kernel} {entry.name}"
        ]
        if not wanted:
            raise UsageError(
                f"no entry of the album holds {only!r}",
                code="unknown_entry",
                mend="`greenfast album` runs all of them",
            )
        answers = []
        for answer in _judged(services, wanted):
            answers.append(answer)
            if not as_json:
                print(visible(_answer_line(answer)), flush=True)
    finally:
        services.close()
    wrong = [one for one in answers if one.sentence]
    if as_json:
        print_json(
            [
                {
                    "kernel": one.entry.kernel,
                    "name": one.entry.name,
                    "expected": one.entry.expected,
                    "got": one.got,
                    "ok": not one.sentence,
                    "why": one.sentence,
                }
                for one in answers
            ]
        )
    else:
        print(f"\n{len(answers) - len(wrong)} of {len(answers)} as expected")
    return EXIT_FINDINGS if wrong else EXIT_CLEAN


def _judged(services: Services, wanted: list[Entry]) -> Iterator[Judged]:
    """One answer an entry, in order, a few at a time."""
    services.target(DEFAULT_TARGET).prepare()

    def work(entry: Entry) -> Judged:
        target = (
            services.target(DEFAULT_TARGET, IMPATIENT_S)
            if entry.impatient
            else services.target(DEFAULT_TARGET)
        )
        with tempfile.TemporaryDirectory(prefix="greenfast-album-") as folder:
            return judge(entry, catalogue_of(entry, Path(folder)), target, services.toolchain)

    pool = ThreadPoolExecutor(services.settings.window)
    try:
        yield from pool.map(work, wanted)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _answer_line(answer: Judged) -> str:
    line = f"{'ok   ' if not answer.sentence else 'WRONG'} {answer.entry.kernel:10} {answer.entry.name:40} {answer.got}"
    return f"{line}; {answer.sentence}" if answer.sentence else line
