"""The order of safety checks: a candidate waits while a faster one is being checked.

A check takes seconds of all cores. Most candidates need none once a faster one has passed it, and
at the beginning of a search all candidates in flight would otherwise be checked at once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

LOOK_S = 0.25  # between two looks whether the search was stopped


@dataclass
class Check:
    """One candidate's turn. `faster_us` is an accepted candidate's time that spares it the check;
    `passed` is set by its caller."""

    faster_us: float | None = None
    passed: bool = False


@dataclass(eq=False)
class CheckOrder:
    """The times of the candidates that are being checked, and the best of those that passed."""

    _passed_us: float = math.inf
    _checked_us: list[float] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def turn(
        self, time_us: float, accepted_us: Callable[[], float], stop: threading.Event
    ) -> Iterator[Check]:
        """Wait until no faster candidate is being checked, or the search is stopped.

        `accepted_us` is the best time that the search has recorded as accepted.
        """
        with self._changed:
            while not stop.is_set() and min(self._checked_us, default=math.inf) < time_us:
                self._changed.wait(LOOK_S)
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
