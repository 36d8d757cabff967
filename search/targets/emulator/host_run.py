"""Builds and runs the host code of a CUDA program, in confined children, to record its launches.

The program writes its record and the contents of its memory into the work folder
(search/diagnose/host_include/gf_recorder.h).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.children import KILL_WAIT_S, child_environment, kill_group
from greenfast.search.cpu_time import Deadline, group_s
from greenfast.search.targets.emulator.build import EmulatorBuild
from greenfast.search.targets.emulator.compiler_process import (
    LOG,
    CompilerFailed,
    run_compiler,
)

STANDARD = "-std=c++17"  # nvcc's default
COMPILE_S, RUN_S = 60.0, 20.0  # of processor time
RUN_WALL_S = 40.0
MEMORY_BYTES, FILE_BYTES = 6 * 2**30, 512 * 2**20
MOST_WRITTEN_BYTES, MOST_FILES = 2**30, 20_000  # of the program, all together
MOST_MISSING = 20  # headers that are not at hand
LOOK_S = 0.05
TEXT, EXPANDED, PROGRAM = "program.cu", "program.ii", "program"
MISSING = "missing"
RECORD = "record"  # as gf_recorder.h writes it, beside content1, content2, ...
RESERVED = (TEXT, EXPANDED, PROGRAM, MISSING, RECORD, LOG)
_MISSING = re.compile(r"fatal error: ([^\s:]+): No such file or directory")
_LITTLE = ("-fpermissive", "-w", "-O0")


@dataclass(frozen=True)
class HostRun:
    """How the program ended: `status` as subprocess has it; None: it was stopped."""

    status: int | None
    seconds: float

    @property
    def was_stopped(self) -> bool:
        """Whether it reached a limit, of which the kernel watches some, too."""
        return self.status in (None, -signal.SIGXCPU, -signal.SIGXFSZ, -signal.SIGKILL)


def run_host_program(
    build: EmulatorBuild,
    text: str,
    include: Path,
    work: Path,
    rewrite: Callable[[str], str],
    words: Sequence[str] = (),
) -> HostRun | CompilerFailed:
    """Run the program of a text with all its local includes; its files are then in `work`.

    `include` has the headers of CUDA. `rewrite` gets the preprocessed text, `main` the words.
    """
    expanded = _expanded(build, text, include, work)
    if isinstance(expanded, CompilerFailed):
        return expanded
    (work / EXPANDED).write_text(rewrite(expanded))
    command = [build.compiler.path, STANDARD, *_LITTLE, "-static", EXPANDED, "-o", PROGRAM]
    confinement = build.library_compiler.confined_to(include)
    failed = run_compiler(command, work, Deadline.of(COMPILE_S), confinement)
    return failed or _run(build, work, words)


def _expanded(build: EmulatorBuild, text: str, include: Path, work: Path) -> str | CompilerFailed:
    """The text after preprocessing. A header that is not at hand counts as empty."""
    (work / TEXT).write_text(text)
    missing = work / MISSING
    missing.mkdir()
    command = [
        *(build.compiler.path, STANDARD, "-E", "-x", "c++", "-D__CUDACC__", "-D__NVCC__", "-w"),
        *("-I", str(include), "-I", str(missing), "-include", "cuda_runtime.h"),
        *(TEXT, "-o", EXPANDED),
    ]
    confinement = build.library_compiler.confined_to(include, missing)
    for _ in range(MOST_MISSING):
        failed = run_compiler(command, work, Deadline.of(COMPILE_S), confinement)
        if failed is None:
            return (work / EXPANDED).read_text(errors="replace")
        header = _MISSING.search(failed.log)
        if header is None or ".." in header[1] or header[1].startswith("/"):
            return failed
        empty = missing / header[1]
        empty.parent.mkdir(parents=True, exist_ok=True)
        empty.touch()
    return CompilerFailed("compile", f"error: more than {MOST_MISSING} headers are not at hand")


def missing_headers(work: Path) -> list[str]:
    """The headers that counted as empty."""
    folder = work / MISSING
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _run(build: EmulatorBuild, work: Path, words: Sequence[str]) -> HostRun:
    limits = (int(RUN_S) + 1, MEMORY_BYTES, FILE_BYTES)
    launcher = build.library_compiler.confined_to().launcher
    folder = work.resolve()
    begun = time.monotonic()
    with open(work / LOG, "wb") as log:
        process = subprocess.Popen(
            [
                *(str(launcher), *map(str, limits), "-r", str(folder), "-w", str(folder)),
                *("-w", "/dev/null", "--alone", str(folder / PROGRAM), *words),
            ],
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=child_environment({"LC_ALL": "C"}),
        )
        try:
            status = _waited_for(process, work, begun)
        finally:
            kill_group(process)
            _wait_for_group(process.pid)
    return HostRun(status, time.monotonic() - begun)


def _wait_for_group(group: int) -> None:
    """Until its last process is gone, which may still be writing into the work folder."""
    end = time.monotonic() + KILL_WAIT_S
    with suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < end:
            os.killpg(group, 0)
            time.sleep(LOOK_S)


def _waited_for(process: subprocess.Popen[bytes], work: Path, begun: float) -> int | None:
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(LOOK_S)
        is_late = time.monotonic() - begun > RUN_WALL_S or group_s(process.pid) > RUN_S
        if is_late or _has_written_too_much(work):
            return None


def _has_written_too_much(work: Path) -> bool:
    """Whether the files in the folder are too many or too large; no file of it disappears."""
    size_bytes = 0
    with os.scandir(work) as entries:
        for number, entry in enumerate(entries, 1):
            size_bytes += entry.stat(follow_symlinks=False).st_size
            if number > MOST_FILES or size_bytes > MOST_WRITTEN_BYTES:
                return True
    return False
