"""Processor time that children have used: it decides whether one has outlasted its deadline.

Wall time does not: where many processes share few cores, it passes for those that wait as for those that work.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from greenfast.search.errors import Fault

LOOK_S = 0.1  # between two looks at a child's clocks
WALL_FACTOR = 10.0  # a child may wait so many times its deadline for its share of the processor
SHORTEST_GUARD_S = 60.0
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


class Starved(Exception):
    """The wall time that guards a deadline passed, and the child had not used the processor time that it may."""


@dataclass(frozen=True)
class Deadline:
    """`cpu_s` is what the child may use; `wall_s` only ends one that does not get it."""

    cpu_s: float
    wall_s: float

    @classmethod
    def of(cls, cpu_s: float) -> Deadline:
        return cls(cpu_s, max(WALL_FACTOR * cpu_s, SHORTEST_GUARD_S))


class Watch:
    """A child's deadline, from now on. `used_s` reads the processor time that the child has used since then."""

    def __init__(self, deadline: Deadline, used_s: Callable[[], float]) -> None:
        self._deadline, self._used_s, self._begun = deadline, used_s, time.monotonic()

    def is_over(self) -> bool:
        """Whether the processor time is used up. Starved when only the wall time is."""
        waited_s = time.monotonic() - self._begun
        if waited_s < min(
            self._deadline.cpu_s, self._deadline.wall_s
        ):  # then the clocks need no look
            return False
        if self._used_s() >= self._deadline.cpu_s:
            return True
        if waited_s >= self._deadline.wall_s:
            raise Starved
        return False


def group_s(group: int) -> float:
    """Of every process of a group, with those that ended and were waited for."""
    return (
        sum(
            sum(map(int, fields[11:15]))
            for fields in map(_fields, _PROC.glob("[0-9]*/stat"))
            if fields and int(fields[2]) == group
        )
        / _TICKS_A_SECOND
    )


def process_s(process: int) -> float:
    """Of one process, with its children that ended and were waited for; 0 when it is gone."""
    return sum(map(int, _fields(_PROC / str(process) / "stat")[11:15])) / _TICKS_A_SECOND


def threads_s(process: int) -> dict[str, float]:
    """Of each thread of a process; empty when it is gone."""
    return {
        path.parent.name: sum(map(int, fields[11:13])) / _TICKS_A_SECOND
        for path in _PROC.glob(f"{process}/task/*/stat")
        if (fields := _fields(path))
    }


def busiest_s(process: int, since: Mapping[str, float]) -> float:
    """Of the thread that used the most since then: on an idle machine about the wall time, however many threads work."""
    return max(
        (used - since.get(thread, 0.0) for thread, used in threads_s(process).items()), default=0.0
    )


def _fields(path: Path) -> list[str]:
    """From the process's state on (proc(5), field 3); empty when the process is gone."""
    try:
        return path.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


class _Company:
    """Children that run side by side in this process, or one that runs by itself."""

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
            self._waiting += 1  # those that come now wait until nobody is or wants to be alone
            self._changed.wait_for(lambda: not self._running)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._waiting -= 1
                self._changed.notify_all()


_company = _Company()
MACHINE_BUSY = "machine_busy"
T = TypeVar("T")


def beside_others(work: Callable[[], T], what: str) -> T:
    """`work`, which runs a child, beside other children of this process; once more without them when it was starved.

    A second time is a Fault: a machine that gives a child no time has said nothing of the child. Work in `work` must
    not come here again.
    """
    try:
        with _company.shared():
            return work()
    except Starved:
        pass
    try:
        with _company.alone():
            return work()
    except Starved:
        raise Fault(
            f"{what} got too little processor time to come to an end, also when nothing else of greenfast's ran "
            "beside it",
            code=MACHINE_BUSY,
            mend="give greenfast more of this machine, or fewer candidates at "
            "a time (GREENFAST_WINDOW)",
        ) from None
