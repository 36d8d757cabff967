"""The command `greenfast` as a process of its own, without the second that its imports take.

One process has imported all of greenfast and forks for every command. The fork then runs
`greenfast.__main__` to the end of its interpreter: arguments, environment, folder, descriptors,
signals and exit status are those of a fresh process. Run as a script, this file is that process.
"""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy.orm import configure_mappers

DESCRIPTORS = 3  # standard output, standard error, and the socket for number and status
LONGEST_REQUEST_BYTES = 1 << 20
IMPORTED = (
    "alembic.command",
    "greenfast.app.bundle.download",
    "greenfast.app.bundle.verify_tuning",
    "greenfast.app.cli.main",
    "greenfast.app.cli.check_run",
    "greenfast.app.cli.search_run",
    "greenfast.app.cli.trial_run",
    "greenfast.app.service.application",
    "greenfast.app.service.server",
    "greenfast.app.service.worker",
    "greenfast.db.sink",
    "greenfast.db.store",
    "greenfast.search.strategies.evolution",
    "greenfast.search.strategies.random_search",
    "greenfast.search.strategies.tpe",
    "greenfast.search.targets.emulator.target",
    "greenfast.search.targets.replay",
    "greenfast.search.toolchain.nvrtc",
)


class WarmCommand:
    """A running command; the part of `subprocess.Popen` that the tests use."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        stdout: int,
        stderr: int,
    ) -> None:
        self.arguments = tuple(arguments)
        self.returncode: int | None = None
        self.stdout: Any = None
        self.stderr: Any = None
        self._status, theirs = socket.socketpair()
        request = {"arguments": self.arguments, "environment": dict(environment)}
        message = json.dumps({**request, "folder": str(folder)}).encode()
        with theirs:
            socket.send_fds(_warm_process(), [message], [stdout, stderr, theirs.fileno()])
        self.pid = int(self._answer())

    def _answer(self) -> str:
        answer = self._status.recv(64).decode()
        assert answer, "the process that forks commands has ended"
        return answer

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.returncode = int(self._answer())
            self._status.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.arguments, timeout or 0.0)
            self.poll()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _warm_process() -> socket.socket:
    """The connection to the process that forks; it ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )

    def end() -> None:
        ours.close()
        process.wait(30)

    atexit.register(end)
    return ours


def _next_command(connection: int) -> dict[str, Any] | None:
    """Fork for each request. In a fork: its command; in the first process: None at the end.

    Only plain descriptors are kept: a fork closes them all, and must not close them once more
    when an object goes.
    """
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    running: dict[int, tuple[int, int]] = {}  # descriptor of a process -> its number and socket
    while True:
        for ready, _ in poll.poll():
            if ready != connection:
                poll.unregister(ready)
                _report(ready, *running.pop(ready))
                continue
            message, descriptors = _received(connection)
            if not message:
                for left_behind, _ in running.values():
                    os.kill(left_behind, signal.SIGTERM)
                return None
            pid = os.fork()
            if pid == 0:
                for target, descriptor in enumerate(descriptors[:2], start=1):
                    os.dup2(descriptor, target)
                os.closerange(3, max(connection, *descriptors, *running, *_sockets(running)) + 1)
                return json.loads(message)
            os.close(descriptors[0])
            os.close(descriptors[1])
            os.write(descriptors[2], str(pid).encode())
            of_process = os.pidfd_open(pid)
            running[of_process] = pid, descriptors[2]
            poll.register(of_process, select.POLLIN)


def _sockets(running: Mapping[int, tuple[int, int]]) -> list[int]:
    return [status for _, status in running.values()]


def _received(connection: int) -> tuple[bytes, list[int]]:
    with socket.socket(fileno=os.dup(connection)) as channel:
        message, descriptors, _, _ = socket.recv_fds(channel, LONGEST_REQUEST_BYTES, DESCRIPTORS)
    return message, list(array.array("i", descriptors))


def _report(of_process: int, pid: int, status: int) -> None:
    _, ended = os.waitpid(pid, 0)
    os.close(of_process)
    with suppress(BrokenPipeError, ConnectionResetError):  # nobody waits any more
        os.write(status, str(os.waitstatus_to_exitcode(ended)).encode())
    os.close(status)


def _become(command: Mapping[str, Any]) -> None:
    """Take on the command's arguments, environment and folder."""
    os.environ.clear()
    os.environ.update(command["environment"])
    time.tzset()
    os.chdir(command["folder"])
    # Python's own objects still know whether the first process's descriptors could be sought.
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(
        2, "w", closefd=False, buffering=1, errors="backslashreplace"
    )
    sys.argv = ["greenfast", *command["arguments"]]


def _run_to_its_end() -> None:
    """Run the command, and end as an interpreter does, without freeing every module before.

    That would take 70 ms, longer than most commands.
    """
    try:
        runpy.run_module("greenfast", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise  # an interpreter writes it to stderr
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code or 0)


if __name__ == "__main__":
    del sys.path[0]  # this file's folder: a fresh command does not know it
    for name in IMPORTED:
        importlib.import_module(name)
    configure_mappers()  # else every fork does it at its first query
    gc.collect()
    gc.freeze()
    mine = _next_command(int(sys.argv[1]))
    if mine is not None:
        _become(mine)
        _run_to_its_end()
