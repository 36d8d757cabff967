"""The GPUs of a target of several: the free ones, and those that have dropped out.

A GPU is blamed only for a request that another GPU answered: a candidate may break any of them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from greenfast.search.errors import Fault
from greenfast.search.targets.cuda.conversation import AT_ONCE
from greenfast.search.targets.cuda.target import CudaTarget

T = TypeVar("T")

# Callers of one GPU: those whose requests its child has, and one that writes or reads its files.
ROOM = AT_ONCE + 1
RETRY_S = 60.0  # after it a new search tries a GPU again that dropped out
STRIKES = 3  # requests in a row that a GPU failed and another GPU answered
# Faults of one GPU or of its driver; another GPU may do the same work.
OF_THE_GPU = (
    "child_lost",
    "child_start",
    "child_stuck",
    "gpu_busy",
    "gpu_error",
    "gpu_memory",
    "gpu_not_ready",
    "gpu_unreadable",
)
# Faults after which a GPU is not tried again in the same search.
OF_A_LOST_GPU = ("driver_mismatch", "gpu_lost", "gpu_quarantined")


@dataclass(eq=False)
class Lane:
    """One GPU, the number of its callers, its requests so far, and its failures in a row."""

    target: CudaTarget
    callers: int = 0
    requests: int = 0
    strikes: int = 0
    lost_at_s: float | None = None  # when it dropped out


@dataclass(eq=False)
class _Caller:
    """A thread that waits for a GPU."""

    choose: Callable[[], Lane]  # the GPU that it would have now
    called: threading.Condition
    lane: Lane | None = None  # that it has


@dataclass(eq=False)
class Lanes:
    """Gives each request to a GPU that is free, and repeats it on another where a GPU fails."""

    lanes: tuple[Lane, ...]
    remarks: list[str] = field(default_factory=list)  # a sentence for each GPU that dropped out

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[_Caller] = deque()

    def on_any(self, work: Callable[[Lane], T], *, at_once: bool = False) -> T:
        """The result of `work` on the GPU with the fewest callers, or on another if that fails.

        `at_once`: without waiting for a GPU that is free. A thread that already has one needs this,
        because all GPUs may be taken by threads that wait for the same.
        """
        failed: list[tuple[Lane, Fault]] = []
        while True:
            with self._taken([lane for lane, _ in failed], at_once) as lane:
                try:
                    result = work(lane)
                except Fault as fault:
                    if not self._is_repeated(lane, fault, [lane for lane, _ in failed]):
                        raise
                    failed.append((lane, fault))
                    continue
            self._credit(lane, failed)
            return result

    def on(self, lane: Lane, work: Callable[[Lane], T]) -> T:
        """The result of `work` on this GPU alone."""
        with self._entered(lambda: lane):
            try:
                return work(lane)
            except Fault as fault:
                if fault.code in OF_A_LOST_GPU:
                    self.drop(lane, fault)
                raise

    def in_use(self) -> tuple[Lane, ...]:
        return tuple(lane for lane in self.lanes if lane.lost_at_s is None)

    def drop(self, lane: Lane, fault: Fault) -> None:
        """Use the GPU no more, unless it is the only one left."""
        with self._lock:
            left = [other.target.name for other in self.in_use() if other is not lane]
            if lane.lost_at_s is not None or not left:
                return
            lane.lost_at_s = time.monotonic()
            self.remarks.append(
                f"{lane.target.name} dropped out ({fault.code}): {fault.message.rstrip('.')}; "
                f"the search continues with {', '.join(left)}"
            )
            self._call()
        threading.Thread(target=_end_child, args=(lane.target,), daemon=True).start()

    def take_back(self) -> None:
        """Use the GPUs again that dropped out a while ago."""
        with self._lock:
            for lane in self.lanes:
                if lane.lost_at_s is not None and time.monotonic() - lane.lost_at_s >= RETRY_S:
                    lane.lost_at_s, lane.strikes = None, 0
            self._call()

    def _is_repeated(self, lane: Lane, fault: Fault, before: Sequence[Lane]) -> bool:
        """Whether another GPU may answer the request that this GPU has failed."""
        if fault.code in OF_A_LOST_GPU:
            self.drop(lane, fault)
        elif fault.code not in OF_THE_GPU:
            return False
        return any(other is not lane and other not in before for other in self.in_use())

    def _credit(self, lane: Lane, failed: Sequence[tuple[Lane, Fault]]) -> None:
        """Note that `lane` answered, after the GPUs in `failed` had not."""
        lane.strikes = 0
        for other, fault in failed:
            other.strikes += 1
            if other.strikes >= STRIKES:
                self.drop(other, fault)

    @contextmanager
    def _taken(self, failed: Sequence[Lane], at_once: bool) -> Iterator[Lane]:
        """The GPU in use with the fewest callers, of those that have not failed yet.

        Of equals it is the one that had the fewest requests, so that work is spread.
        """

        def choice() -> Lane:
            lanes = [lane for lane in self.in_use() if lane not in failed]
            return min(lanes or self.in_use(), key=lambda lane: (lane.callers, lane.requests))

        with self._entered(choice, at_once=at_once) as lane:
            yield lane

    @contextmanager
    def _entered(self, choose: Callable[[], Lane], *, at_once: bool = False) -> Iterator[Lane]:
        own = _Caller(choose, threading.Condition(self._lock))
        try:
            with self._lock:
                if at_once:
                    self._give(own, choose())
                else:
                    self._waiting.append(own)
                    self._call()
                own.called.wait_for(lambda: own.lane is not None)
            assert own.lane is not None
            yield own.lane
        finally:
            with self._lock:
                if own.lane is None:
                    self._waiting.remove(own)
                else:
                    own.lane.callers -= 1
                    self._call()

    def _call(self) -> None:
        """Give the free GPUs to those that wait, in their order. It wakes no others."""
        for caller in tuple(self._waiting):
            if all(lane.callers >= ROOM for lane in self.lanes):
                return
            lane = caller.choose()
            if lane.callers < ROOM:
                self._waiting.remove(caller)
                self._give(caller, lane)
                caller.called.notify()

    @staticmethod
    def _give(caller: _Caller, lane: Lane) -> None:
        lane.callers, lane.requests = lane.callers + 1, lane.requests + 1
        caller.lane = lane


def _end_child(target: CudaTarget) -> None:
    with suppress(Fault):  # one that cannot be ended is quarantined
        target.fresh()
