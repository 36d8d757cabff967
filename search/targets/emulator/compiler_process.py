"""Runs the host's C++ compiler in a killable child, with limits and a reason when it fails."""

from __future__ import annotations

import os
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

LOG_LIMIT_BYTES = 32 * 1024
COMPILER_MEMORY_BYTES = 2 * 2**30
COMPILER_FILE_BYTES = 256 * 2**20
OUT_OF_MEMORY = ("out of memory", "virtual memory exhausted", "bad_alloc", "Cannot allocate memory")
CRASH = ("internal compiler error", "terminated signal", "Killed signal")


Compiler = subprocess.Popen[str] | subprocess.Popen[bytes]


@dataclass(frozen=True)
class CompilerFailed:
    reason: str  # 'compile' | 'timeout' | 'crash' | 'memory'
    log: str  # the compiler's, capped


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


def run_compiler(command: Sequence[str], work: Path, deadline: Deadline) -> CompilerFailed | None:
    """Run the command in the folder `work`; None when it succeeded.

    Starved when it got too little of the processor.
    """
    # The compiler forks, so limits must be set before it starts: a shell sets them and becomes it.
    limits = (
        f"ulimit -c 0; ulimit -t {int(deadline.cpu_s) + 2}; "
        f"ulimit -v {COMPILER_MEMORY_BYTES // 1024}; "
        f'ulimit -f {COMPILER_FILE_BYTES // 512}; exec "$@"'
    )
    log_path = work / "log"
    with open(log_path, "wb") as log:
        process = subprocess.Popen(
            ["/bin/sh", "-c", limits, "sh", *command],
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=child_environment({"TMPDIR": str(work), "LC_ALL": "C"}),
        )
        with interruptible(process):
            returncode = _waited_for(process, deadline)
    text = capped(_read_capped(log_path))
    if returncode == 0:
        return None
    return CompilerFailed(_failure_reason(returncode, text), text)


def _waited_for(process: subprocess.Popen[bytes], deadline: Deadline) -> int | None:
    """The exit status; None when the deadline passed."""
    watch = Watch(deadline, lambda: group_s(process.pid))
    while True:
        try:
            return process.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            if watch.is_over():
                return None


def _failure_reason(returncode: int | None, log: str) -> str:
    if returncode is None or "CPU time limit" in log:
        return "timeout"
    if any(words in log for words in OUT_OF_MEMORY):
        return "memory"
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
