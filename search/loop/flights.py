"""The trials of a search that are begun and not recorded, in the order of their numbers.

Where times are measured, a trial whose time is known makes room for another one, and the strategy
hears of it. Its safety check, and the checks of trials before it, may last longer: they need
neither the compiler nor the GPU. Elsewhere each trial keeps its room until it is recorded, so that
the same plan makes the same choices.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from greenfast.search.loop.evaluate import Evaluated
from greenfast.search.loop.memory import Recalled
from greenfast.search.loop.proposer import Proposed
from greenfast.search.render import RenderedSource
from greenfast.search.strategies.base import Proposal, Told
from greenfast.search.verdict import Faulted, Stage, Verdict

# Times the window: trials that are not recorded, with those that only wait for it. At the start
# of a search nearly all wait for the first safety check, which takes seconds on busy cores.
BEHIND = 8


WORKER_DIED = "worker_died"
DEATHS = 3  # a candidate that was in flight when a worker died this often is not tried again
T = TypeVar("T")


@dataclass(frozen=True)
class Asked:
    """A trial that begins when its proposal has come."""

    number: int
    future: Future[Proposed | None]
    attempts: int = 0  # of workers that died with it


def proposals_that_came(asked: deque[Asked]) -> tuple[list[tuple[Asked, Proposed]], bool]:
    """Take the first trials whose proposals have come; True: no valid point is left."""
    came: list[tuple[Asked, Proposed]] = []
    while asked and asked[0].future.done():
        proposed = asked[0].future.result()
        if proposed is None:
            return came, True
        came.append((asked.popleft(), proposed))
    return came, False


@dataclass(frozen=True)
class Heard:
    """What the strategy has learnt about a trial; None: nothing, as after a fault."""

    told: Told | None


@dataclass(eq=False)
class Flight:
    """A trial that is being evaluated, or waits for its turn to be recorded."""

    number: int
    proposal: Proposal
    source: RenderedSource | None
    future: Future[Evaluated]
    recalled: Recalled | None = None  # the verdict comes from an earlier search
    # The verdict before the safety check, from the moment at which the time is known.
    timed: Future[Verdict] = field(default_factory=Future)
    heard: Heard | None = None  # None: the strategy was not told yet

    @property
    def outcome(self) -> Verdict | None:
        """The verdict, or the one so far; None: it is neither known nor likely yet."""
        if self.future.done():
            return self.future.result().verdict
        return self.timed.result() if self.timed.done() else None


def set_once(future: Future[Verdict]) -> Callable[[Verdict], None]:
    """Give `future` its result; the second result of a repeated evaluation is ignored."""

    def hear(verdict: Verdict) -> None:
        if not future.done():
            future.set_result(verdict)

    return hear


def known(result: T) -> Future[T]:
    """A future that has its result."""
    future: Future[T] = Future()
    future.set_result(result)
    return future


def may_try_again(verdict: Verdict) -> bool:
    """Whether a resumed search may propose the candidate again: a fault says nothing about it.

    A candidate with which workers died may be the reason.
    """
    return isinstance(verdict, Faulted) and verdict.code != WORKER_DIED


def died(attempts: int) -> Faulted:
    return Faulted(
        Stage.COMPILE,
        WORKER_DIED,
        f"the worker died {attempts} times with this candidate in flight; it is not tried again",
    )


class Flights:
    """A queue of trials with room for `window` that are compiled, checked and timed."""

    def __init__(
        self, window: int, *, is_measured: bool, room: Callable[[], int] | None = None
    ) -> None:
        """`is_measured`: trials whose time is known take no room. `room`: the trials under way that
        are enough at the moment, up to the window (default: the window)."""
        self._is_measured, self._room = is_measured, room or (lambda: window)
        self.most = BEHIND * window if is_measured else window
        self._queue: deque[Flight] = deque()
        self._begun = 0
        self._under_way: set[Flight] = set()  # of the queue: the outcome is not known
        self._changed = threading.Event()

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def futures(self) -> tuple[Future[Evaluated], ...]:
        """The futures of the trials that are not recorded yet."""
        return tuple(flight.future for flight in self._queue)

    def has_room(self, asked: int, ending: int = 0) -> bool:
        """Whether another trial may begin beside `asked` that are to begin, and `ending` that are
        being recorded."""
        if len(self._queue) + asked + ending >= self.most:
            return False
        return not self._is_measured or len(self._under_way) + asked < self._room()

    def in_time(self, asked: int, run_s: float, left_s: float) -> bool:
        """Whether one more trial would be known within `left_s`, at the rate of the first `run_s`.

        Without it, a search of slow trials would continue for as many trials as there is room for.
        """
        known = self._begun - len(self._under_way)
        if not self._is_measured or not known:
            return True
        return (len(self._under_way) + asked + 1) * run_s / known <= left_s

    def add(self, flight: Flight) -> None:
        self._begun += 1
        self._queue.append(flight)
        if self._is_measured:
            self._under_way.add(flight)
        for outcome in (flight.future, flight.timed):
            outcome.add_done_callback(lambda _: self._know(flight))

    def _know(self, flight: Flight) -> None:
        self._under_way.discard(flight)
        self._changed.set()

    def watch(self, future: Future[Any]) -> None:
        """Let `wait` end when this future has its result."""
        future.add_done_callback(lambda _: self._changed.set())

    def wait(self, longest_s: float) -> None:
        """Wait until a result has come since the last call."""
        self._changed.wait(longest_s)
        self._changed.clear()

    def wake(self) -> None:
        """Let the next `wait` end at once."""
        self._changed.set()

    def news(self) -> Iterator[Flight]:
        """The trials that the strategy is to hear of now, in order: not past an unknown one."""
        if not self._is_measured:
            return
        for flight in self._queue:
            if flight.heard is not None:
                continue
            if flight.outcome is None:
                return
            yield flight

    def done(self) -> list[Flight]:
        """Take the first trials whose evaluation has ended.

        Where nothing is measured it is one at most: the strategy is asked after each of them.
        """
        done: list[Flight] = []
        while self._queue and self._queue[0].future.done():
            done.append(self._queue.popleft())
            if not self._is_measured:
                break
        return done
