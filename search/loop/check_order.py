"""The order of safety checks: the fastest candidate first, and few at a time.

A check takes about a second of CPU, which compilations need as well. Most candidates need none once
a faster one has passed it, and at the beginning of a search all candidates in flight would
otherwise be checked at once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from greenfast.search.cores import usable_cores

LOOK_S = 0.5  # between two looks whether the search was stopped
CORES_A_CHECK = 8
LEAST_AT_ONCE = 2  # a candidate that is faster than the one in its check need not wait


def checks_at_once(cores: int) -> int:
    return max(LEAST_AT_ONCE, cores // CORES_A_CHECK)


@dataclass
class Check:
    """One candidate's turn. `faster_us` is an accepted candidate's time that spares it the check;
    `passed` is set by its caller."""

    faster_us: float | None = None
    passed: bool = False


@dataclass(eq=False)
class CheckOrder:
    """The times of candidates that wait or are checked, and the best of those that passed."""

    at_once: int = field(default_factory=lambda: checks_at_once(usable_cores()))
    _passed_us: float = math.inf
    _checked_us: list[float] = field(default_factory=list)
    _waiting_us: list[float] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def turn(
        self, time_us: float, accepted_us: Callable[[], float], stop: threading.Event
    ) -> Iterator[Check]:
        """Wait until no faster candidate waits or is checked, or the search is stopped.

        `accepted_us` is the best time that the search has recorded as accepted.
        """
        with self._changed:
            self._waiting_us.append(time_us)
            try:
                while not stop.is_set() and not self._may_go_on(time_us, accepted_us()):
                    self._changed.wait(LOOK_S)
            finally:
                self._waiting_us.remove(time_us)
                self._changed.notify_all()
            best_us = min(self._passed_us, accepted_us())
            check = Check(best_us if best_us < time_us else None)
            if check.faster_us is None:
                self._checked_us.append(time_us)
        try:
            yield check
        finally:
            if check.faster_us is None:
                with self._changed:
                    self._checked_us.remove(time_us)
                    if check.passed:
                        self._passed_us = min(self._passed_us, time_us)
                    self._changed.notify_all()

    def _may_go_on(self, time_us: float, accepted_us: float) -> bool:
        """Whether a waiting candidate is spared its check, or is the next one to be checked."""
        if min(self._passed_us, accepted_us) < time_us:
            return True
        others_us = (*self._checked_us, *self._waiting_us)
        return len(self._checked_us) < self.at_once and min(others_us) >= time_us
