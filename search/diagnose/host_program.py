"""A whole CUDA program, checked as it launches its kernels.

The host's code is compiled and run in confined children against headers that record each launch
(host_include/). The emulator then runs the launches. No GPU takes part, so the host sees no results
of its kernels.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from greenfast.search.diagnose.check import CheckReport, is_stopped, merged
from greenfast.search.diagnose.host_memory import DeviceMemory
from greenfast.search.diagnose.host_record import read_record
from greenfast.search.diagnose.host_steps import Copy, LaunchRun, Recorded, Write
from greenfast.search.diagnose.host_text import host_program
from greenfast.search.diagnose.plain import PlainKernel, PlainOptions, check_plain, read_plain
from greenfast.search.diagnose.plain_text import PlainText, read_plain_text
from greenfast.search.errors import UsageError
from greenfast.search.kernels.plain_file import open_plain
from greenfast.search.render import with_markers
from greenfast.search.scratch import scratch
from greenfast.search.targets.emulator.compiler_process import LOG, CompilerFailed
from greenfast.search.targets.emulator.host_run import (
    MEMORY_BYTES,
    MOST_FILES,
    MOST_WRITTEN_BYTES,
    RESERVED,
    RUN_S,
    HostRun,
    missing_headers,
)
from greenfast.search.targets.emulator.target import EmulatorTarget
from greenfast.search.text import one_line, shortened, visible

MOST_RUNS = 12
LAST_PRINTED_BYTES = 64 * 2**10  # of which a message repeats one line
ALLOWANCE = (
    f"it may take {RUN_S:.0f} s of processor time, {MEMORY_BYTES >> 30} GiB of memory and "
    f"{MOST_WRITTEN_BYTES >> 30} GiB in {MOST_FILES:,} files, which hold the arrays of its "
    "launches; smaller sizes may fit"
)
STOPPED = f"what the program does after it was stopped: {ALLOWANCE}"
ELSEWHERE = "is in none of its files"
INCLUDE = Path(__file__).resolve().parent / "host_include"
_LAUNCHES = re.compile(r"(?<!operator)<<\s*<(?!<)|\bcudaLaunch(?:Cooperative)?Kernel\b")
_MAIN = re.compile(r"\bmain\s*\(")
_UNDEFINED = re.compile(r"undefined reference to [`']([^'\n]*)'")
_ERROR = re.compile(r"(?m)^([^\s:]+):(\d+):\d+: (?:fatal )?error: (.*)$")


@dataclass(frozen=True)
class ProgramParts:
    """What a text has of a program that launches kernels."""

    has_main: bool
    has_launches: bool

    @property
    def is_program(self) -> bool:
        return self.has_main and self.has_launches


def program_parts(text: str) -> ProgramParts:
    return ProgramParts(bool(_MAIN.search(text)), bool(_LAUNCHES.search(text)))


def program_text(cuda_file: Path, options: PlainOptions) -> PlainText:
    """The program's files, one behind the other, each with the local files that it includes."""
    files = (cuda_file, *options.others)
    folders = (*dict.fromkeys(file.parent for file in files), *options.include_dirs)
    headers = _Headers(folders)
    return read_plain_text(files, options.include_dirs, options.defines, headers, lambda name: True)


class _Headers(Collection[str]):
    """Names that the host's compiler looks up itself: all that are no file of the program's."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    def __contains__(self, name: object) -> bool:
        return not any((folder / str(name)).is_file() for folder in self._folders)

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(())

    def __len__(self) -> int:
        return 0


def recorded(
    cuda_file: Path, options: PlainOptions, target: EmulatorTarget, work: Path
) -> Recorded:
    """The launches of the program. UsageError in one sentence."""
    text = program_text(cuda_file, options)
    _copy_inputs(options.input_files, work)
    unit = with_markers([line for line, _ in text.body], [origin for _, origin in text.body])
    ended = target.host_program(unit, INCLUDE, work, host_program, options.words)
    if isinstance(ended, CompilerFailed):
        raise _refused(cuda_file, options.others, ended, missing_headers(work))
    program = read_record(work, f"the program of {cuda_file.name}", _ending(ended, work))
    return replace(program, limits=(*program.limits, STOPPED)) if ended.was_stopped else program


def _copy_inputs(files: Sequence[Path], work: Path) -> None:
    """Put files where the program runs, and where it sees no others. UsageError for one that
    cannot be read, or has the name of a file that greenfast writes."""
    for file in files:
        if file.name in RESERVED or (work / file.name).exists():
            raise UsageError(
                f"--file {visible(file)}: the program's folder has another {visible(file.name)}",
                code="bad_command_line",
                mend="rename the file",
            )
        try:
            with open_plain(file) as source, open(work / file.name, "wb") as copy:
                shutil.copyfileobj(source, copy)
        except OSError as error:
            raise UsageError(
                f"--file {visible(file)} cannot be read: {error.strerror}", code="missing_file"
            ) from None


def _ending(ended: HostRun, work: Path) -> str:
    """How the program ended, with the last line that it printed."""
    if ended.was_stopped:
        how = f"it was stopped after {ended.seconds:.0f} s: {ALLOWANCE}"
    elif ended.status is not None and ended.status < 0:
        how = f"signal {-ended.status} ended it"
    else:
        how = f"it ended with exit code {ended.status}"
    with open(work / LOG, "rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - LAST_PRINTED_BYTES))
        lines = log.read().decode(errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return how + (f" and printed: {shortened(visible(last.strip()), 200)}" if last else "")


@dataclass(frozen=True)
class CheckedProgram:
    report: CheckReport
    files: Mapping[str, Path]  # by the names that the report uses


def check_host_program(
    cuda_file: Path, options: PlainOptions, target: EmulatorTarget, *, is_strict: bool
) -> CheckedProgram:
    """Every launch of the program under the checks."""
    reports: list[CheckReport] = []
    files: dict[str, Path] = {}
    with scratch("host") as work:
        program = recorded(cuda_file, options, target, work)
        limits = list(program.limits)
        memory = DeviceMemory(program.allocations)
        kinds = set()
        for step in program.steps:
            if isinstance(step, Write):
                memory.write(step)
            elif isinstance(step, Copy):
                memory.copy(step)
            elif step.left_out or step.kind in kinds:  # the latter: again in a loop
                memory.leave_results(step, {})
            elif len(reports) == MOST_RUNS:
                limits.append(f"launches after the first {MOST_RUNS} groups")
                break
            else:
                kinds.add(step.kind)
                plain = read_plain(cuda_file, memory.launch_file(step), options, target)
                report = check_plain(target, plain, is_strict=is_strict)
                reports.append(report)
                files |= plain.brought.files
                if is_stopped(report.findings):
                    limits.append("launches after one that stops early")
                    break
                memory.leave_results(step, _results(target, plain, step))
    return CheckedProgram(joined(reports, limits), files)


def _results(
    target: EmulatorTarget, plain: PlainKernel, run: LaunchRun
) -> Mapping[str, np.ndarray]:
    """The memory behind a run, by the names of its buffers; a large one has no results."""
    if run.is_large:
        return {}
    (execution,) = target.execute(target.load(plain.brought.source, None), [plain.brought.problem])
    return execution.outputs


def joined(reports: Sequence[CheckReport], limits: Sequence[str]) -> CheckReport:
    first = reports[0]
    return replace(
        first,
        runs=tuple(run for report in reports for run in report.runs),
        findings=merged(finding for report in reports for finding in report.findings),
        notes=tuple(dict.fromkeys(note for it in reports for note in it.notes)),
        remarks=tuple(dict.fromkeys(remark for it in reports for remark in it.remarks)),
        limits=tuple(limits),
    )


def _first_error(log: str) -> str:
    if error := _ERROR.search(log):
        return f"{error[1].removeprefix(f'{INCLUDE}/')}:{error[2]}: {error[3]}"
    if undefined := _UNDEFINED.search(log):
        return f"{undefined[1]} {ELSEWHERE}"
    return one_line(log)


def _refused(
    cuda_file: Path, others: Sequence[Path], failed: CompilerFailed, missing: Sequence[str]
) -> UsageError:
    first = _first_error(failed.log)
    without = f" (without {', '.join(missing)}, which greenfast does not have)" if missing else ""
    hint = ""
    if first.endswith(ELSEWHERE):
        files = " ".join(visible(each) for each in (cuda_file, *others))
        hint = f"name the program's other files, too: greenfast check {files} OTHER.cu; or "
    elif others and re.search(r"redefinition|redeclared|conflicting|ambiguous", first):
        hint = (
            "the files are compiled as one text, in the order of the command, so two of them "
            "cannot define one name: rename it in one; or "
        )
    elif missing and re.search(r"not (?:been )?declared|does not name a type", first):
        hint = "name the folder of such a header with -I FOLDER; or "
    elif re.match(r"[^:]+\.c:", first):
        hint = "C files are compiled as C++, so correct it for C++, too; or "
    return UsageError(
        f"the host code of {cuda_file.name} does not compile{without}: {shortened(first, 300)}",
        code="host_does_not_compile",
        mend=f"{hint}name a kernel with --entry, --grid, --block and --arg, or give a --launch "
        "file; neither needs host code",
    )
