"""Runs the host's C++ compiler in a killable, confined child, with a reason when it fails.

A candidate's text is a program for the compiler, too: it can name any file. gf-confine
(native/confine_main.cpp) therefore limits the compiler to its own files, the headers, and the work
folder, whose size this process watches.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.children import child_environment, kill_group
from greenfast.search.cpu_time import LOOK_S, Deadline, Watch, group_s
from greenfast.search.errors import Fault

LOG = "log"  # in the work folder
LOG_LIMIT_BYTES = 32 * 1024
COMPILER_MEMORY_BYTES = 2 * 2**30
COMPILER_FILE_BYTES = 64 * 2**20
WORK_BYTES = 96 * 2**20  # of all files in the work folder; a library takes about 100 KB
LEAST_SPACE_BYTES = 16 * 2**20  # below which a compiler's failure is not the source's
WORK_FILES = 500  # in the work folder; g++ has about 10 at a time
# Lines of the compiler itself. Those about a text begin with its name and line, and may quote it.
OUT_OF_MEMORY = re.compile(
    r"^(?!\s|\S*:\d)(?:\S+: )*(?:fatal error: |LLVM ERROR: )?"
    r"(?:out of memory|virtual memory exhausted|memory exhausted|terminate called .*bad_alloc"
    r"|.*: Cannot allocate memory$)",
    re.MULTILINE,
)
CRASH = ("internal compiler error", "terminated signal", "Killed signal")
# Signals that other processes send, and Linux when memory runs out: they tell nothing of a source.
OUTSIDE = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM)
_NAMES, _NUMBERS = "Hangup|Interrupt|Quit|Killed|Terminated", "|".join(map(str, map(int, OUTSIDE)))
# How g++, collect2 and clang++ report that such a signal ended one of their programs.
PASS_ENDED = re.compile(
    rf"^[^\s:]+: (?:fatal )?error: (?:(?:{_NAMES}) signal terminated program "
    rf"|\S+ terminated with signal (?:{_NUMBERS})\b|unable to execute command: (?:{_NAMES})$)",
    re.MULTILINE,
)
KILLED = "killed"  # the reason of a run that is repeated


Compiler = subprocess.Popen[str] | subprocess.Popen[bytes]


@dataclass(frozen=True)
class CompilerFailed:
    reason: str  # 'compile' | 'timeout' | 'crash' | 'memory'
    log: str  # the compiler's, capped


@dataclass(frozen=True)
class Confinement:
    """gf-confine, and what a compiler under it may read beside the work folder."""

    launcher: Path
    readable: tuple[str, ...]

    def command(self, work: Path, deadline: Deadline) -> list[str]:
        """The words before a command that runs in the folder `work`."""
        limits = (int(deadline.cpu_s) + 2, COMPILER_MEMORY_BYTES, COMPILER_FILE_BYTES)
        readable = [word for path in self.readable for word in ("-r", path)]
        writable = ["-w", str(work.resolve()), "-w", "/dev/null"]
        return [str(self.launcher), *map(str, limits), *readable, *writable, "--"]


def interrupt() -> None:
    """Kill every compiler that this process runs. Their callers raise Fault; later calls work."""
    with _live_lock:
        for process in _live:
            _interrupted.add(process)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


# The running compilers, for `interrupt`, which has no handle on the calls that wait for them.
_live: set[Compiler] = set()
_interrupted: set[Compiler] = set()
_live_lock = threading.Lock()


@contextmanager
def interruptible(process: Compiler) -> Iterator[None]:
    """A block that waits for the process; the process is gone afterwards.

    Fault when `interrupt` ended it.
    """
    with _live_lock:
        _live.add(process)
    try:
        yield
    finally:
        with _live_lock:
            _live.discard(process)
            was_interrupted = process in _interrupted
            _interrupted.discard(process)
        if process.returncode is None:
            kill_group(process)
    if was_interrupted:
        raise Fault("the compiler was interrupted", code="interrupted")


def run_compiler(
    command: Sequence[str], work: Path, deadline: Deadline, confinement: Confinement
) -> CompilerFailed | None:
    """Run the command in the folder `work`; None when it succeeded.

    It runs twice if another process ends it or one of its passes, as Linux does when memory runs
    out. What it wrote is in LOG there. Starved when it got too little of the processor.
    """
    failed = _run_once(command, work, deadline, confinement)
    if failed is not None and failed.reason == KILLED:
        failed = _run_once(command, work, deadline, confinement)
    if failed is not None and failed.reason == KILLED:
        return CompilerFailed("crash", f"error: the compiler was killed twice\n{failed.log}")
    return failed


def _run_once(
    command: Sequence[str], work: Path, deadline: Deadline, confinement: Confinement
) -> CompilerFailed | None:
    log_path = work / LOG
    with open(log_path, "wb") as log:
        process = subprocess.Popen(
            [*confinement.command(work, deadline), *command],
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=child_environment({"TMPDIR": str(work), "LC_ALL": "C", "CCACHE_DISABLE": "1"}),
        )
        with interruptible(process):
            reason = _waited_for(process, deadline, work)
    text = capped(_read_capped(log_path))
    if reason == "memory":
        most = f"{WORK_BYTES >> 20} MiB or {WORK_FILES} files"
        text = f"error: the compiler wrote more than {most}\n{text}"
    if reason or process.returncode:
        require_space(work)
        return CompilerFailed(reason or _failure_reason(process.returncode, text), text)
    return None


def require_space(folder: Path) -> None:
    """A Fault if the disk is full, which a compiler may report as something else, or not at all."""
    space = os.statvfs(folder)
    if space.f_bavail * space.f_frsize < LEAST_SPACE_BYTES:
        raise disk_full(folder.parent)


def disk_full(folder: Path) -> Fault:
    return Fault(
        f"the disk of {folder} is full, so nothing can be compiled there",
        code="disk_full",
        mend="free some space in the data folder",
    )


def _waited_for(process: subprocess.Popen[bytes], deadline: Deadline, work: Path) -> str:
    """Wait for the end; the reason why the process has to be killed, or nothing."""
    watch = Watch(deadline, lambda: group_s(process.pid))
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_S)
        if _is_too_large(work):
            return "memory"
        if process.returncode is not None:
            return ""
        if watch.is_over():
            return "timeout"


def _is_too_large(work: Path) -> bool:
    """Whether the files in the folder, some of which come and go, are too many or too large.

    A file counts with its length, also where it has no blocks: its end may be all that is read.
    """
    size_bytes = 0
    with os.scandir(work) as entries:
        for number, entry in enumerate(entries, 1):
            with suppress(OSError):
                size_bytes += entry.stat(follow_symlinks=False).st_size
            if number > WORK_FILES or size_bytes > WORK_BYTES:
                return True
    return False


def _failure_reason(returncode: int, log: str) -> str:
    if "CPU time limit" in log:
        return "timeout"
    if OUT_OF_MEMORY.search(log):
        return "memory"
    if -returncode in OUTSIDE or PASS_ENDED.search(log):
        return KILLED
    if returncode < 0 or any(words in log for words in CRASH):
        return "crash"
    return "compile"


def _read_capped(path: Path) -> str:
    size = path.stat().st_size
    with open(path, "rb") as log:
        head = log.read(LOG_LIMIT_BYTES)
        if size > 2 * LOG_LIMIT_BYTES:
            log.seek(size - LOG_LIMIT_BYTES)
        return (head + log.read()).decode(errors="replace")


def capped(text: str) -> str:
    if len(text) <= LOG_LIMIT_BYTES:
        return text
    half = LOG_LIMIT_BYTES // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
