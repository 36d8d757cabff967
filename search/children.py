"""Child processes that can be killed; candidate code and compilers run only in these.

A child is a process group with an allow-listed environment and resource limits. The parent
enforces the deadline and kills the whole group. Requests and replies are length-prefixed JSON on
private pipes: never stdout, and never pickle, since a child that ran candidate code is not trusted.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

from greenfast.search.cpu_time import LOOK_S, Deadline, Starved, WallWatch, Watch, own_s
from greenfast.search.errors import Fault

ENVIRONMENT_ALLOWED = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "PYTHONPATH",
)
LOOK_MS = round(1e3 * LOOK_S)
LONGEST_LOOK_S = 3600.0
LARGEST_MESSAGE_BYTES = 64 * 2**20
KILL_WAIT_S = 10.0
ALIVE_FD = 0  # of a child: a pipe that is open as long as its parent
# What a process does to itself; any other signal came from outside and says nothing of its work.
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Limits:
    """Resource limits of a child. None: not limited."""

    cpu_s: int | None = None
    memory_bytes: int | None = None
    file_bytes: int | None = 512 * 2**20
    processes: int | None = None


class ChildDied(Exception):
    """The child ended by itself. `tail` is the end of its stderr.

    `signal_number` is the signal that ended it, or 0.
    """

    def __init__(self, returncode: int, tail: str) -> None:
        super().__init__(f"the child ended with {returncode}")
        self.returncode = returncode
        self.signal_number = -returncode if returncode < 0 else 0
        self.tail = tail

    @property
    def has_crashed(self) -> bool:
        """Whether its own work ended it."""
        return self.signal_number in CRASHES


class ChildTimeout(Exception):
    """The child exceeded its deadline, and its group was killed."""


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The allow-listed part of the environment; no secret of the service reaches a child."""
    kept = {name: os.environ[name] for name in ENVIRONMENT_ALLOWED if name in os.environ}
    return {
        **kept,
        **safe_path(),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        **(extra or {}),
    }


def safe_path() -> dict[str, str]:
    """Variables that keep a Python child from importing files of the current folder."""
    # An empty entry of PYTHONPATH means the current folder.
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return {
        "PYTHONSAFEPATH": "1",
        **({"PYTHONPATH": os.pathsep.join(entries)} if "PYTHONPATH" in os.environ else {}),
    }


def limit(pid: int, limits: Limits) -> None:
    """Set the limits of a child that has no work yet."""
    values = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NPROC, limits.processes),
    ]
    for kind, value in values:
        if value is not None:
            lower(kind, value, pid)


def lower(kind: int, value: int, pid: int = 0) -> None:
    """Set a limit of a process, of this one by default, unless it has a lower one already."""
    hard = resource.prlimit(pid, kind)[1]
    most = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.prlimit(pid, kind, (most, most))


def kill_group(process: subprocess.Popen[Any]) -> bool:
    """Kill the child and all processes it started.

    Returns False when it still exists after `KILL_WAIT_S`, as when a driver holds it.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(KILL_WAIT_S)
    except subprocess.TimeoutExpired:
        return False
    return True


class Child:
    """A Python child that serves one request at a time: `python -P -B -m module READ_FD WRITE_FD`.

    Further requests may lie in its pipe meanwhile. Replies come in their order. Raises Fault when
    it cannot be started.
    """

    def __init__(
        self,
        module: str,
        limits: Limits,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment`: variables beside those of `child_environment`."""
        request_read, request_write = os.pipe()
        reply_read, reply_write = os.pipe()
        alive_read, alive_write = os.pipe()  # nothing is written to it; it closes with this process
        self._errors: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  `close` closes it
        try:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-B",  # bytecode that a file limit cuts off would stop every later start
                    "-m",
                    module,
                    str(request_read),
                    str(reply_write),
                    *arguments,
                ],
                stdin=alive_read,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                close_fds=True,
                pass_fds=(request_read, reply_write),
                env=child_environment(environment),
                start_new_session=True,
            )
            limit(self.process.pid, limits)
        except OSError as error:
            ends = (request_read, request_write, reply_read, reply_write, alive_read, alive_write)
            for fd in ends:
                os.close(fd)
            raise Fault(
                f"a child for {module} cannot be started: {error.strerror}", code="child_start"
            ) from error
        for fd in (request_read, reply_write, alive_read):
            os.close(fd)
        self._write, self._read, self._alive = request_write, reply_read, alive_write
        self._killed = False
        self._writing = threading.Lock()
        os.set_blocking(self._write, False)
        os.set_blocking(self._read, False)
        self._has_room, self._arrived = select.poll(), select.poll()
        self._has_room.register(self._write, select.POLLOUT)
        self._arrived.register(self._read, select.POLLIN)

    def call(self, request: Mapping[str, Any], deadline_s: float | Deadline) -> dict[str, Any]:
        """Send `request` and return the reply. Raises as `receive` does."""
        watch = self._watch(deadline_s)
        try:
            self.send(encoded(request))
        except OSError:
            self._died()
        return self._reply(watch)

    def send(self, message: bytes) -> None:
        """Write an encoded request. OSError when the child has ended.

        It may wait until the child reads. Another thread may receive a reply, or end the child.
        """
        with self._writing:
            left = memoryview(message)
            while left:
                if self._killed:
                    raise BrokenPipeError
                if self._has_room.poll(LOOK_MS):
                    left = left[os.write(self._write, left) :]

    def receive(self, deadline_s: float | Deadline) -> dict[str, Any]:
        """The reply to the first request that has none. The deadline counts from now.

        A number of seconds is wall time, for children that wait for a device. Raises ChildDied,
        ChildTimeout or Starved; the child is then dead and must be replaced.
        """
        return self._reply(self._watch(deadline_s))

    def _reply(self, watch: Watch | WallWatch) -> dict[str, Any]:
        length = _LENGTH.unpack(self._receive(_LENGTH.size, watch))[0]
        if length > LARGEST_MESSAGE_BYTES:
            self.close()
            raise ChildDied(-signal.SIGKILL, f"a reply of {length} bytes")
        reply: dict[str, Any] = json.loads(self._receive(length, watch))
        return reply

    @property
    def alive(self) -> bool:
        return not self._killed and self.process.poll() is None

    def kill(self) -> None:
        """Kill the child from another thread; the call in progress raises ChildDied."""
        self._killed = True
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> bool:
        """End the child; False when it still exists."""
        self._killed = True
        gone = self.process.returncode is not None or kill_group(self.process)
        with self._writing:  # the number of a closed pipe may soon belong to another file
            for name in ("_read", "_write", "_alive"):
                if getattr(self, name, -1) >= 0:
                    os.close(getattr(self, name))
                    setattr(self, name, -1)
        self._errors.close()
        return gone

    def _watch(self, deadline: float | Deadline) -> Watch | WallWatch:
        if isinstance(deadline, Deadline):
            begun_s = own_s(self.process.pid)
            return Watch(deadline, lambda: own_s(self.process.pid) - begun_s)
        return WallWatch(time.monotonic() + deadline)

    def _receive(self, count: int, watch: Watch | WallWatch) -> bytes:
        """Receive that many bytes. It wakes up for nothing else before the deadline may be over."""
        chunks, missing = [], count
        while missing:
            look_s = min(max(LOOK_S, watch.quiet_s), LONGEST_LOOK_S)
            if not self._arrived.poll(1e3 * look_s):
                self._close_when(watch)
                continue
            chunk = os.read(self._read, min(missing, 1 << 20))
            if not chunk:
                self._died()
            chunks.append(chunk)
            missing -= len(chunk)
        return b"".join(chunks)

    def _close_when(self, watch: Watch | WallWatch) -> None:
        """Close it, and raise, if the deadline is over."""
        try:
            late = watch.is_over()
        except Starved:
            self.close()
            raise
        if late:
            self.close()
            raise ChildTimeout

    def _died(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        kill_group(self.process)
        self._errors.seek(0)
        tail = self._errors.read()[-4000:].decode(errors="replace")
        code = self.process.returncode
        self.close()
        raise ChildDied(code, tail)


class Children:
    """Up to `count` children of one module, each started when it is first needed.

    Safe for several threads. A start takes some hundred milliseconds, so children stay; they end
    with this process, whose end closes their pipes. Another one is started only after a wait of
    `patience_s` for one that runs: where most calls are shorter than a start, few are needed.
    """

    def __init__(
        self,
        count: int,
        module: str,
        limits: Limits,
        arguments: Sequence[str] = (),
        *,
        patience_s: float = 0.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.count = count
        self._patience_s, self._environment = patience_s, environment
        self._module, self._limits, self._arguments = module, limits, arguments
        self._changed = threading.Condition()
        self._idle: list[Child] = []  # the one used last at the end
        self._busy: set[Child] = set()
        self._seen: dict[Child, set[Hashable]] = {}
        self._starting = 0

    @property
    def all(self) -> tuple[Child, ...]:
        """The children that run."""
        with self._changed:
            return (*self._idle, *self._busy)

    @contextmanager
    def taken(self, key: Hashable = None) -> Iterator[Child]:
        """A child for this block alone, rather one that has worked on `key` before.

        It is ended when the block raises anything: its next reply may belong to this request.
        """
        child = self._take(key)
        try:
            yield child
        except BaseException:
            self._give_back(child, is_kept=False)
            raise
        self._give_back(child, is_kept=True)

    def warm(self, count: int) -> None:
        """Start children until `count` of them run, for a caller that will soon need them."""
        while True:
            with self._changed:
                running = len(self._idle) + len(self._busy) + self._starting
                if running >= min(count, self.count):
                    return
                self._starting += 1
            child = self._started()
            with self._changed:
                self._starting -= 1
                self._idle.insert(0, child)
                self._seen[child] = set()
                self._changed.notify()

    def call(self, request: Mapping[str, Any], deadline_s: float | Deadline) -> dict[str, Any]:
        """The reply of a child; raises as `Child.call` does, and Fault when none starts."""
        with self.taken() as child:
            return child.call(request, deadline_s)

    def kill(self) -> None:
        """Kill all children; the calls in progress raise ChildDied, later ones start others."""
        for child in self.all:
            child.kill()

    def close(self) -> None:
        """End the idle children. Busy ones stay, and so does the room for new ones."""
        with self._changed:
            idle, self._idle = self._idle, []
            for child in idle:
                self._seen.pop(child, None)
        for child in idle:
            child.close()

    def _take(self, key: Hashable) -> Child:
        with self._changed:
            if self._patience_s:
                self._changed.wait_for(self._is_none_awaited, self._patience_s)
            while not self._idle and len(self._busy) + self._starting >= self.count:
                self._changed.wait()
            child = self._chosen(key)
            if child is not None:
                self._busy.add(child)
                self._seen[child].add(key)
                return child
            self._starting += 1
        child = self._started()
        with self._changed:
            self._starting -= 1
            self._busy.add(child)
            self._seen[child] = {key}
        return child

    def _started(self) -> Child:
        """A new child, for a caller that has counted it among those that start."""
        try:
            return Child(self._module, self._limits, self._arguments, self._environment)
        except BaseException:
            with self._changed:
                self._starting -= 1
                self._changed.notify()
            raise

    def _is_none_awaited(self) -> bool:
        """Whether a child is idle, or none is at work that could soon be."""
        return bool(self._idle) or not (self._busy or self._starting)

    def _chosen(self, key: Hashable) -> Child | None:
        """An idle child that runs, taken from the list; None if one must be started."""
        while self._idle:
            knowing = [each for each in self._idle if key in self._seen[each]]
            has_room = len(self._idle) + len(self._busy) + self._starting < self.count
            if key is not None and not knowing and has_room:
                return None
            child = (knowing or self._idle)[-1]
            self._idle.remove(child)
            if child.alive:
                return child
            self._seen.pop(child, None)
            child.close()
        return None

    def _give_back(self, child: Child, *, is_kept: bool) -> None:
        with self._changed:
            self._busy.discard(child)
            if is_kept:
                self._idle.append(child)
            else:
                self._seen.pop(child, None)
            self._changed.notify()
        if not is_kept:
            child.close()


class Parent:
    """The child's end of its pipes. The end of its parent ends it, also in an endless loop."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._requests, self._replies = os.fdopen(read_fd, "rb"), os.fdopen(write_fd, "wb")
        _end_with(ALIVE_FD)

    def request(self) -> dict[str, Any] | None:
        """The next request; None when the parent has closed its pipe."""
        head = self._requests.read(_LENGTH.size)
        if not head:
            return None
        request: dict[str, Any] = json.loads(self._requests.read(_LENGTH.unpack(head)[0]))
        return request

    def reply(self, reply: Mapping[str, Any]) -> None:
        self._replies.write(encoded(reply))
        self._replies.flush()


def _end_with(pipe: int) -> None:
    """Let the kernel send SIGIO, which ends this process, when the other end of `pipe` closes.

    Nothing is ever written to that pipe: SIGIO would tell of data, too, even of data that was read
    before. PR_SET_PDEATHSIG would follow the thread that started this process, and threads end
    earlier.
    """
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(pipe, 0)
    if poll.poll(0):  # closed before the kernel watched it
        raise SystemExit(1)


def serve_requests(
    handle: Callable[[dict[str, Any]], Mapping[str, Any]], read_fd: int, write_fd: int
) -> None:
    """The child's side: handle requests until the parent closes the pipe."""
    parent = Parent(read_fd, write_fd)
    while (request := parent.request()) is not None:
        parent.reply(handle(request))
    gc.freeze()  # else the interpreter looks through all modules for garbage as it ends


def encoded(message: Mapping[str, Any]) -> bytes:
    """A request or reply as it travels."""
    body = json.dumps(message).encode()
    return _LENGTH.pack(len(body)) + body
