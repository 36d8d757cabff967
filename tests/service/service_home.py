"""What the service's tests share: a data folder with commands that work on it, and waiting."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from new_database import FILE, place_database
from warm_command import WarmCommand

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "tests" / "kernels"
DEADLINE_S = 600  # a loaded machine is no failure
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 0.3

Process = subprocess.Popen | WarmCommand


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Home:
    """A data folder of its own, and the commands that work on it.

    `warm`: commands are forks of a process that has imported greenfast (tests/warm_command.py).
    """

    warm = True

    def __init__(self, folder: Path, cache: Path) -> None:
        self.data = folder
        place_database(folder / FILE)
        (folder / "cache").symlink_to(cache)
        self.environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith("GREENFAST_")
            },
            "GREENFAST_DATA": str(folder),
            "GREENFAST_TEMPLATE_PATH": str(KERNELS),
            "GREENFAST_WINDOW": "2",
            "GREENFAST_LEASE_S": "2",
            "GREENFAST_POLL_S": "0.25",
            "PYTHONPATH": str(ROOT),
        }
        self._started: list[Process] = []

    def run(self, *arguments: str, **environment: str) -> Ended:
        """One command to its end."""
        if self._is_warm(environment):
            return self._run_warm(arguments, {**self.environment, **environment})
        done = subprocess.run(
            self._command(arguments),
            env={**self.environment, **environment},
            cwd=self.data,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def _run_warm(self, arguments: tuple[str, ...], environment: Mapping[str, str]) -> Ended:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            command = WarmCommand(arguments, environment, self.data, out.fileno(), err.fileno())
            try:
                command.wait(DEADLINE_S)
            finally:
                command.kill()
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        return Ended(command.wait(), *texts)

    def _start_warm(
        self, arguments: tuple[str, ...], environment: Mapping[str, str]
    ) -> WarmCommand:
        (out, their_out), (err, their_err) = os.pipe(), os.pipe()
        command = WarmCommand(arguments, environment, self.data, their_out, their_err)
        os.close(their_out)
        os.close(their_err)
        command.stdout, command.stderr = os.fdopen(out), os.fdopen(err)
        return command

    def _is_warm(self, environment: Mapping[str, str]) -> bool:
        """Whether a fork can run it: an interpreter reads the other variables when it starts."""
        own = {name for name in environment if not name.startswith("GREENFAST_")}
        return self.warm and own <= {"COLUMNS", "PATH"}

    def start(self, *arguments: str, **environment: str) -> Process:
        """A command that goes on; ended with the test."""
        if self._is_warm(environment):
            command = self._start_warm(arguments, {**self.environment, **environment})
            self._started.append(command)
            return command
        process = subprocess.Popen(
            self._command(arguments),
            env={**self.environment, **environment},
            cwd=self.data,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def serve(self, *arguments: str, **environment: str) -> tuple[Process, str]:
        """A running service and its URL."""
        process = self.start("serve", "--port", "0", *arguments, **environment)
        line = process.stdout.readline()
        assert line.startswith("greenfast serves http://"), line + process.stderr.read()
        return process, line.split()[-1]

    def serve_with_worker(self) -> str:
        """The URL of a running service. Its one worker is a fork as well.

        The workers that a service starts are fresh processes; each imports all of greenfast.
        """
        _, url = self.serve("--workers", "0")
        self.start("worker")
        return url

    def end_all(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._started:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
            process.stdout.close()
            process.stderr.close()

    @staticmethod
    def _command(arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "greenfast", *arguments]


def until(is_so: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """The first true answer; fails with `what` when none comes.

    Asks less and less often: each question costs the service and the test processor time.
    """
    end, pause_s = time.monotonic() + deadline_s, SHORTEST_PAUSE_S
    while time.monotonic() < end:
        if answer := is_so():
            return answer
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, LONGEST_PAUSE_S)
    raise AssertionError(f"not within {deadline_s} s: {what}")


def run_async(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The coroutine's result, from a loop in a thread of its own.

    A browser test of the same process leaves Playwright's loop running in the main thread.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] + [
        int(word)
        for task in Path(f"/proc/{pid}/task").iterdir()
        if task.name != str(pid)
        for word in (task / "children").read_text().split()
    ]


def one_sentence(ended: Ended) -> str:
    """The single line that a refusal writes on stderr."""
    lines = ended.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("greenfast: "), ended.err
    return lines[0]


def axpy(**fields: Any) -> Mapping[str, Any]:
    """A search over the album's smallest kernel: three trials, a second or two."""
    return {"kernel": "axpy", "templates": ["right"], "budget": {"trials": 3}, "seed": 1, **fields}
