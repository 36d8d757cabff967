"""Ablations and explanations that a page or a REST call asks for.

Each runs as `greenfast` in a process of its own, one at a time, so that the serving process
compiles and runs nothing. Results are stored by that process; only the state is kept here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from greenfast.app.settings import Settings
from greenfast.app.views.ablation_schemas import JobOut
from greenfast.search.children import kill_group, safe_path
from greenfast.search.errors import UsageError
from greenfast.search.text import one_line

MOST_WAITING = 8
MOST_KEPT = 200  # states of jobs that ended
LONGEST_OUTPUT = 2_000
LOOK_S = 0.2
RUNNING, DONE, FAILED = "running", "done", "failed"


@dataclass
class _Jobs:
    settings: Settings
    stopping: threading.Event
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: deque[tuple[str, str]] = field(default_factory=deque)
    states: OrderedDict[tuple[str, str], JobOut] = field(default_factory=OrderedDict)
    thread: threading.Thread | None = None


class LedgerJobs:
    """The background work of one serving process."""

    def __init__(self, settings: Settings, stopping: threading.Event) -> None:
        self._jobs = _Jobs(settings, stopping)

    def start(self, command: str, name: str) -> JobOut:
        """Queue `greenfast COMMAND NAME`, unless it runs; UsageError `jobs_busy` for too many."""
        jobs, key = self._jobs, (command, name)
        with jobs.lock:
            state = jobs.states.get(key)
            if state is not None and state.state == RUNNING:
                return state
            if len(jobs.waiting) >= MOST_WAITING:
                raise UsageError(
                    f"{MOST_WAITING} ablations and explanations are already waiting",
                    code="jobs_busy",
                    mend="try again later, or run the command by hand",
                )
            jobs.waiting.append(key)
            self._keep(key, JobOut(state=RUNNING, sentence=f"greenfast {command} {name}"))
            if jobs.thread is None:
                jobs.thread = threading.Thread(target=self._work, name="ledger jobs", daemon=True)
                jobs.thread.start()
            return jobs.states[key]

    def state(self, command: str, name: str) -> JobOut | None:
        with self._jobs.lock:
            return self._jobs.states.get((command, name))

    def _keep(self, key: tuple[str, str], state: JobOut) -> None:
        states = self._jobs.states
        states[key] = state
        states.move_to_end(key)
        ended = [name for name, kept in states.items() if kept.state != RUNNING]
        for name in ended[: max(0, len(states) - MOST_KEPT)]:
            del states[name]

    def _work(self) -> None:
        jobs = self._jobs
        while True:
            with jobs.lock:
                if not jobs.waiting or jobs.stopping.is_set():
                    jobs.thread = None
                    return
                key = jobs.waiting.popleft()
            state = self._run(*key)
            with jobs.lock:
                self._keep(key, state)

    def _run(self, command: str, name: str) -> JobOut:
        jobs = self._jobs
        environment = {
            **os.environ,
            **safe_path(),
            "GREENFAST_DATA": str(jobs.settings.data.absolute()),
            "GREENFAST_TOKEN": "",
        }
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "greenfast", command, name, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        assert process.stderr is not None
        last = deque[str](maxlen=20)
        reader = threading.Thread(target=_read, args=(process, last), daemon=True)
        reader.start()
        while process.poll() is None and not jobs.stopping.wait(LOOK_S):
            pass
        if process.poll() is None:
            kill_group(process)
            process.wait()
            return JobOut(state=FAILED, sentence="the service was stopped")
        reader.join(1.0)
        if process.returncode in (0, 1):  # 1: the command's answer is "wrong"
            return JobOut(state=DONE, sentence=f"greenfast {command} {name}")
        words = one_line(" ".join(last))[-LONGEST_OUTPUT:]
        return JobOut(state=FAILED, sentence=words or f"it ended with {process.returncode}")


def _read(process: subprocess.Popen[bytes], last: deque[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        last.append(line.decode("utf-8", "replace")[:LONGEST_OUTPUT])
