"""Runs a proposer and ends it with everything that it started.

A program of its own, without imports of greenfast: `python -I -S evolve_keeper.py FD WORD...`.
The kernel hands orphans of the command to this process, also those that made a session of their
own, so none of them outlives it. The outcome goes to FD as a line of JSON: {"exit": CODE}, or
{"errno": NUMBER} for a command that cannot be started. SIGTERM ends the command early. Linux only;
elsewhere, orphans in other sessions stay. Source: PR_SET_CHILD_SUBREAPER(2const).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Iterator

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PATIENCE_S = 5.0  # for processes that are killed and do not end, as in a driver


def main(outcome_fd: int, words: list[str]) -> None:
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        library.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGTERM, _end)
    try:
        os.set_inheritable(outcome_fd, False)
        outcome = _run(words)
    except OSError as error:
        outcome = {"errno": error.errno or 0}
    except SystemExit:
        outcome = {}
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _end_descendants()
    if outcome:
        os.write(outcome_fd, json.dumps(outcome).encode())


def _end(*_: object) -> None:
    raise SystemExit


def _run(words: list[str]) -> dict[str, int]:
    """The command's exit code, negative for a signal."""
    pid = os.posix_spawnp(
        words[0], words, os.environ, setpgroup=0, setsigdef=[signal.SIGPIPE, signal.SIGTERM]
    )
    while True:
        ended, status = os.waitpid(-1, 0)  # orphans end here too
        if ended == pid:
            return {"exit": os.waitstatus_to_exitcode(status)}


def _end_descendants() -> None:
    """Stop all of them before the first is killed, so that none starts another meanwhile."""
    end = time.monotonic() + PATIENCE_S
    stopped: set[int] = set()
    while time.monotonic() < end:
        living = set(_descendants(os.getpid()))
        if not living:
            return
        number = signal.SIGSTOP if living - stopped else signal.SIGKILL
        stopped |= living
        for pid in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        if number == signal.SIGKILL:
            time.sleep(0.002)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _descendants(ancestor: int) -> Iterator[int]:
    """All descendants, also those that have ended and were not waited for."""
    children: dict[int, list[int]] = {}
    names: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        names = os.listdir("/proc")
    for name in names:
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
    waiting = [ancestor]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            yield pid
            waiting.append(pid)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
