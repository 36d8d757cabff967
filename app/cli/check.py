"""`greenfast check`: findings with their lines, for people and programs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from greenfast.app.cli.files import require_folder, write_output
from greenfast.app.cli.options import (
    AsJson,
    Output,
    ParameterValues,
    Preset,
    Seed,
    Target,
    Workloads,
)
from greenfast.app.cli.output import console, print_json, table
from greenfast.app.settings import Settings
from greenfast.search.errors import UsageError
from greenfast.search.text import file_line, visible
from greenfast.search.verdict import LineCost, SafetyFinding

if TYPE_CHECKING:
    from greenfast.app.cli.check_run import CheckOutcome
    from greenfast.search.diagnose.plain import GivenLaunch, PlainOptions

EXIT_CLEAN, EXIT_FINDINGS = 0, 1
CUDA_ENDINGS = (".cu", ".cuh", ".h", ".hpp", ".hh", ".cpp", ".cc", ".cxx", ".c", ".inl")
LINES_AROUND = 1
MOST_LINES = 12  # of costs in the text report
LONGEST_SOURCE_LINE = 70  # characters


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"


SubjectArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="KERNEL | FILE.cu ...",
        help="A kernel of the catalogue, or your own CUDA file; several are one program.",
    ),
]
TemplateOption = Annotated[
    str | None,
    typer.Option("--template", metavar="NAME", help="The template of KERNEL to render."),
]
LaunchOption = Annotated[
    Path | None,
    typer.Option(
        "--launch",
        metavar="LAUNCH.toml",
        help="The buffers and launches of FILE.cu; "
        "`greenfast docs emulator#checking-your-own-kernel` shows one.",
    ),
]
EntryOption = Annotated[
    str | None,
    typer.Option(
        "--entry",
        metavar="NAME",
        help="The kernel of FILE.cu to launch: foo, ns::foo<float, 4>. [default: the only one]",
    ),
]
GridOption = Annotated[
    str | None, typer.Option("--grid", metavar="X[,Y,Z]", help="Blocks. [default: 1]")
]
BlockOption = Annotated[
    str | None, typer.Option("--block", metavar="X[,Y,Z]", help="Threads of a block. [default: 1]")
]
SmemOption = Annotated[
    int | None, typer.Option("--smem", metavar="BYTES", help="Dynamic shared memory of a block.")
]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster", metavar="X[,Y,Z]", help="Blocks of a cluster.")
]
ArgumentOption = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        metavar="NAME:TYPE[SIZES]=VALUE:ROLE",
        help="An argument of the kernel, in order: x:float32[4096], y:float[4096]:out, n:int=4096; "
        "`greenfast docs check` has the table.",
    ),
]
DataOption = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="NAME=VALUE",
        help="The value of a __constant__ or __device__ variable, as in C++: 'k={1, 2, 3}'.",
    ),
]
DefineOption = Annotated[
    list[str] | None,
    typer.Option("-D", metavar="NAME[=VALUE]", help="Define a macro; may be repeated."),
]
IncludeOption = Annotated[
    list[Path] | None,
    typer.Option("-I", metavar="FOLDER", help="A folder of FILE.cu's includes; may be repeated."),
]
WordsOption = Annotated[
    str | None,
    typer.Option(
        "--args",
        metavar="WORDS",
        help="Arguments of FILE.cu's main, as in a shell: '1000 --seed 3'.",
    ),
]
InputOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--file",
        metavar="PATH",
        help="A file that FILE.cu's main reads, from the folder it runs in; may be repeated. It "
        "sees no others.",
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        max=86400.0,
        help="Processor time of one run, after which an endless loop is reported with its line. "
        "[default: 120]",
    ),
]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Also report unordered writes of the same value by several threads, and outputs that "
        "depend on the order of the threads.",
    ),
]
FormOption = Annotated[
    Format,
    typer.Option("--format", help="The form of the report; sarif is for editors and CI."),
]


def check(
    subjects: SubjectArgument,
    template: TemplateOption = None,
    preset: Preset = None,
    settings: ParameterValues = None,
    workload: Workloads = None,
    launch: LaunchOption = None,
    entry: EntryOption = None,
    grid: GridOption = None,
    block: BlockOption = None,
    smem: SmemOption = None,
    cluster: ClusterOption = None,
    arguments: ArgumentOption = None,
    data: DataOption = None,
    defines: DefineOption = None,
    include_dirs: IncludeOption = None,
    target: Target = None,
    seed: Seed = None,
    words: WordsOption = None,
    files: InputOption = None,
    timeout: TimeoutOption = None,
    strict: StrictOption = False,
    form: FormOption = Format.TEXT,
    output: Output = None,
    as_json: AsJson = False,
) -> int:
    """Run a kernel on the emulator and look for defects that correct results can hide.

    Finds data races, reads of memory that was never written, accesses out of bounds, barriers that
    not all threads reach, and deadlocks. Every finding names its lines. The report also lists the
    lines that cost the most memory traffic.

    FILE.cu with a `main` needs no further options: its host code runs, too, and every launch that
    it makes is checked. If a program has several source files, name them all.

    Only executed schedules and inputs are observed, so a clean report is not a proof.

    Exit codes: 0 clean, 1 findings.
    """
    from greenfast.app.cli.check_run import check_candidate, check_file
    from greenfast.app.cli.trial_run import TrialRequest
    from greenfast.app.wiring import Services
    from greenfast.search.diagnose.plain import PlainOptions

    require_folder(output)
    services = Services(Settings.from_environment())
    subject, *others = subjects
    try:
        flags = LaunchFlags(entry, grid, block, cluster, smem, arguments, data)
        is_file = bool(others) or Path(subject).suffix in CUDA_ENDINGS
        if is_file or launch is not None or entry is not None:
            _refuse_options(template, preset, settings, workload)
            _refuse_main_options(words, files, launch, flags)
            options = PlainOptions(
                *(tuple(defines or ()), tuple(include_dirs or ()), seed or 0, timeout),
                words=tuple(shell_words(words or "")),
                others=tuple(map(Path, others)),
                input_files=tuple(files or ()),
            )
            given = _launch_of(subject, launch, flags, options)
            outcome = check_file(services, Path(subject), given, target, options, is_strict=strict)
        else:
            name, values = _required_template(subject, template), tuple(settings or ())
            shapes = tuple(workload or ())
            request = TrialRequest(subject, name, preset, values, shapes, target, seed)
            outcome = check_candidate(services, request, is_strict=strict)
    finally:
        services.close()
    show(outcome, Format.JSON if as_json else form, output)
    return EXIT_FINDINGS if outcome.report.findings else EXIT_CLEAN


def _required_template(kernel: str, template: str | None) -> str:
    if template is None:
        raise UsageError(
            "check KERNEL needs --template",
            code="bad_command_line",
            mend=f"`greenfast templates {kernel}` lists them; FILE.cu needs --launch LAUNCH.toml",
        )
    return template


@dataclass(frozen=True)
class LaunchFlags:
    """The launch of a file as the command line gives it, in place of a LAUNCH.toml."""

    entry: str | None
    grid: str | None
    block: str | None
    cluster: str | None
    smem: int | None
    arguments: list[str] | None
    data: list[str] | None


def shell_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--args {text!r}: {error}", code="bad_command_line") from None


def _refuse_main_options(
    words: str | None, files: list[Path] | None, launch: Path | None, flags: LaunchFlags
) -> None:
    """UsageError for options of a `main` beside those of a launch, with which it does not run."""
    if (words is not None or files) and (launch is not None or any(vars(flags).values())):
        raise UsageError(
            f"{'--args are' if words is not None else '--file is'} for FILE.cu's main, which does "
            "not run with --launch, --entry, --grid, --block, --smem, --cluster, --arg or --data",
            code="bad_command_line",
        )


def _launch_of(
    cuda_file: str, launch: Path | None, flags: LaunchFlags, options: PlainOptions
) -> Path | GivenLaunch | None:
    """The one of the two that is given; None for neither, if the files are a program that launches
    its kernels itself. UsageError for both, or neither."""
    if launch is not None and any(vars(flags).values()):
        raise UsageError(
            "--launch and --entry, --grid, --block, --smem, --cluster, --arg or --data "
            "exclude each other; give one of them",
            code="bad_command_line",
        )
    if launch is not None:
        return launch
    if any(vars(flags).values()):
        return _given_launch(cuda_file, flags)
    _require_program(Path(cuda_file), options)
    return None


def _require_program(cuda_file: Path, options: PlainOptions) -> None:
    """UsageError for files without a `main`, or without a launch."""
    from greenfast.app.cli.import_source import without_comments
    from greenfast.search.diagnose.host_program import program_parts, program_text

    lines = program_text(cuda_file, options).body
    parts = program_parts(without_comments("\n".join(text for text, _ in lines)))
    if parts.is_program:
        return
    if parts.has_main:
        raise UsageError(
            f"{visible(cuda_file)} has a main, but no launch of a kernel is in it or in its local "
            "includes",
            code="no_launch",
            mend=f"name the program's other files, too: greenfast check {visible(cuda_file)} "
            "KERNELS.cu",
        )
    raise _needs_kernel(str(cuda_file))


def _given_launch(cuda_file: str, flags: LaunchFlags) -> GivenLaunch:
    from greenfast.search.diagnose.plain import GivenLaunch

    entry = flags.entry or (_only_kernel(Path(cuda_file)) if flags.arguments else None)
    if entry is None:
        raise _needs_kernel(cuda_file)
    return GivenLaunch(
        entry,
        _sizes("grid", flags.grid),
        _sizes("block", flags.block),
        _sizes("cluster", flags.cluster),
        flags.smem or 0,
        tuple(flags.arguments or ()),
        tuple(flags.data or ()),
    )


def _needs_kernel(cuda_file: str) -> UsageError:
    return UsageError(
        f"check {visible(cuda_file)} needs a kernel: --entry NAME with --grid, --block and --arg, "
        "or --launch LAUNCH.toml",
        code="bad_command_line",
        mend="`greenfast docs check` shows both; a program with a `main` needs neither",
    )


def _only_kernel(cuda_file: Path) -> str | None:
    """The kernel of a file that has one."""
    from greenfast.app.cli.import_source import ENTRY, without_comments
    from greenfast.search.kernels.author_files import read_author_file

    text = without_comments(read_author_file(cuda_file, visible(cuda_file)))
    names = {match["name"] for match in ENTRY.finditer(text)}
    return names.pop() if len(names) == 1 else None


def _sizes(option: str, text: str | None) -> tuple[int, int, int]:
    parts = (text or "1").replace("x", ",").split(",")
    if not 1 <= len(parts) <= 3 or not all(part.strip().isdecimal() for part in parts):
        raise UsageError(
            f"--{option} {text!r} must be one to three whole numbers above 0",
            code="bad_command_line",
            mend=f"--{option} 64 or --{option} 8,4,1",
        )
    x, y, z = (*map(int, parts), 1, 1)[:3]
    return x, y, z


def _refuse_options(*options: object) -> None:
    if any(options):
        raise UsageError(
            "--template, --preset, --set and --workload are for kernels of the catalogue, "
            "not for a file",
            code="bad_command_line",
        )


def show(outcome: CheckOutcome, form: Format, output: Path | None) -> None:
    """Print the report, or write it to `output`."""
    from greenfast.app.cli.check_run import check_json
    from greenfast.app.cli.sarif import sarif_text

    if form is Format.TEXT:
        if output is not None:
            write_output(output, visible("\n".join(report_lines(outcome)) + "\n"))
            return
        for line in report_lines(outcome):
            print(visible(line))
        show_costs(outcome)
    elif form is Format.SARIF:
        if output is not None:
            write_output(output, sarif_text(outcome))
        else:
            print(sarif_text(outcome), end="")
    else:
        print_json(check_json(outcome))


def report_lines(outcome: CheckOutcome) -> Iterator[str]:
    """Each finding with both its lines as the author wrote them, then a summary."""
    report = outcome.report
    yield f"{outcome.subject} on {outcome.target}"
    for number, finding in enumerate(report.findings, 1):
        times = f", {finding.count} times" if finding.count > 1 else ""
        yield ""
        yield f"{number}. {finding.kind}{times}: {finding.sentence}"
        yield from _excerpts(finding, outcome)
    yield ""
    orders = ", ".join(dict.fromkeys(run.order.partition(":")[0] for run in report.runs))
    number = len(report.findings)
    findings = f"{number} finding{'' if number == 1 else 's'}" if number else "no findings"
    runs = f"{len(report.runs)} run{'' if len(report.runs) == 1 else 's'}"
    yield f"{findings} in {runs} (order of threads: {orders})"
    yield from (f"note: {note}; --strict reports them" for note in report.notes)
    yield from (f"note: {remark}" for remark in report.remarks)
    yield from (f"not checked: {limit}" for limit in report.limits)
    yield "looked for: " + ", ".join(report.looked_for)


def _excerpts(finding: SafetyFinding, outcome: CheckOutcome) -> Iterator[str]:
    words = {finding.where: "used here" if finding.kind == "unset_variable" else "this access"}
    if finding.other_where is not None:
        words[finding.other_where] = (
            "conflicts with this one"
            if finding.other_where != finding.where
            else "by two different threads"
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
    """Print the lines that cost the most shared-memory and the most global-memory traffic."""
    for is_shared, unit, factor in (
        (True, "wavefronts", "conflict factor"),
        (False, "sectors", "sectors / ideal"),
    ):
        costs = [cost for cost in outcome.report.costs if cost.is_shared is is_shared]
        if not costs:
            continue
        memory = "shared" if is_shared else "global"
        print()
        console().print(
            table(
                ("line", "", "instructions", unit, factor, "source"),
                [_cost_row(cost, outcome) for cost in costs[:MOST_LINES]],
                title=f"{memory} memory by line, counted in {outcome.report.counted}",
            )
        )


def _cost_row(cost: LineCost, outcome: CheckOutcome) -> tuple[object, ...]:
    path = outcome.files.get(cost.file)
    lines = path.read_text("utf-8", "replace").splitlines() if path else []
    source = lines[cost.line - 1].strip() if 0 < cost.line <= len(lines) else cost.file
    several = len(outcome.files) > 1
    return (
        file_line(cost.file.rpartition("/")[2], cost.line) if several else cost.line,
        cost.kind.partition("_")[2],
        cost.instructions,
        cost.transactions,
        f"{cost.factor:.2f}",
        source[:LONGEST_SOURCE_LINE],
    )
