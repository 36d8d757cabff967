"""Processor time of children, by which they are held to their deadlines.

Wall time would not do: where many processes share few cores, it also passes for a child that waits.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from greenfast.search.errors import Fault

LOOK_S = 0.1  # between two readings of a child's clocks
WALL_FACTOR = 10.0  # wall time that a child may take, in multiples of its processor time
SHORTEST_GUARD_S = 60.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_SCHEDULED = 2  # CPUCLOCK_SCHED: the time in which the process ran


class Starved(Exception):
    """A child reached its limit of wall time before it had used its processor time."""


@dataclass(frozen=True)
class Deadline:
    """`cpu_s` of processor time; `wall_s` only ends a child that does not get it."""

    cpu_s: float
    wall_s: float

    @classmethod
    def of(cls, cpu_s: float) -> Deadline:
        return cls(cpu_s, max(WALL_FACTOR * cpu_s, SHORTEST_GUARD_S))

    def later(self, grace_s: float) -> Deadline:
        """The same with `grace_s` more processor time."""
        return Deadline(self.cpu_s + grace_s, self.wall_s + grace_s)


@dataclass(frozen=True)
class WallWatch:
    """A deadline in wall time."""

    end_s: float  # of `time.monotonic`

    @property
    def quiet_s(self) -> float:
        return self.end_s - time.monotonic()

    def is_over(self) -> bool:
        return self.quiet_s <= 0


class Watch:
    """A child's deadline, which begins now.

    `used_s` returns the processor time that the child has used since then.
    """

    def __init__(self, deadline: Deadline, used_s: Callable[[], float]) -> None:
        self._deadline, self._used_s, self._begun = deadline, used_s, time.monotonic()

    @property
    def quiet_s(self) -> float:
        """Seconds for which it cannot be over; below 0 once it may be."""
        soonest_s = min(self._deadline.cpu_s, self._deadline.wall_s)
        return self._begun + soonest_s - time.monotonic()

    def is_over(self) -> bool:
        """Whether the processor time is used up; raises Starved when only the wall time is."""
        if self.quiet_s > 0:
            return False  # without reading the clocks, which takes longer
        if self._used_s() >= self._deadline.cpu_s:
            return True
        if time.monotonic() - self._begun >= self._deadline.wall_s:
            raise Starved
        return False


def group_s(group: int) -> float:
    """Processor time of a process group, including children that were waited for."""
    return (
        sum(
            sum(map(int, fields[11:15]))
            for fields in map(_fields, _PROC.glob("[0-9]*/stat"))
            if fields and int(fields[2]) == group
        )
        / _TICKS_A_SECOND
    )


def process_s(process: int) -> float:
    """Processor time of a process and its children that were waited for; 0 when it is gone."""
    return sum(map(int, _fields(_PROC / str(process) / "stat")[11:15])) / _TICKS_A_SECOND


def own_s(process: int) -> float:
    """Processor time of a process without its children; 0 when it is gone.

    One system call, which keeps Python's lock: files of /proc give it up, and a thread of a busy
    process waits long to get it back.
    """
    try:
        # The clock of clock_getcpuclockid(3), as the C library makes its number.
        return time.clock_gettime((~process << 3) | _SCHEDULED)
    except OSError:
        return 0.0


def threads_s(process: int) -> dict[str, float]:
    """Processor time of each thread of a process; empty when it is gone."""
    return {
        path.parent.name: sum(map(int, fields[11:13])) / _TICKS_A_SECOND
        for path in _PROC.glob(f"{process}/task/*/stat")
        if (fields := _fields(path))
    }


def resident_bytes(process: int) -> int:
    """The memory that a process has now; 0 when it is gone."""
    try:
        pages = (_PROC / str(process) / "statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * _PAGE_BYTES


def busiest_s(process: int, since: Mapping[str, float]) -> float:
    """Processor time of the busiest thread since `since` (`threads_s`).

    On an idle machine this is about the wall time, however many threads work.
    """
    return max(
        (used - since.get(thread, 0.0) for thread, used in threads_s(process).items()), default=0.0
    )


def _fields(path: Path) -> list[str]:
    """The fields of a stat file from the third on, the state (proc(5)); empty when it is gone."""
    try:
        return path.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


class _RunningChildren:
    """The running children of this process: several side by side, or one alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running, self._waiting = 0, 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._waiting += 1  # from now on `shared` waits
            self._changed.wait_for(lambda: not self._running)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._waiting -= 1
                self._changed.notify_all()


_running_children = _RunningChildren()
MACHINE_BUSY = "machine_busy"
T = TypeVar("T")


def without_others() -> AbstractContextManager[None]:
    """A block beside which no child of this process runs that `beside_others` counts."""
    return _running_children.alone()


def beside_others(work: Callable[[], T], name: str) -> T:
    """Run `work`, which runs a child, beside other children; when starved, once more alone.

    Raises Fault when it is starved again, because that is not evidence about the child. `name` is
    the subject of that sentence. `work` must not call this function.
    """
    try:
        with _running_children.shared():
            return work()
    except Starved:
        pass
    try:
        with _running_children.alone():
            return work()
    except Starved:
        raise Fault(
            f"{name} got too little processor time to finish, even without another child of "
            "greenfast beside it",
            code=MACHINE_BUSY,
            mend="run fewer other programs, or fewer candidates at a time (GREENFAST_WINDOW)",
        ) from None
