"""The wall seconds that a candidate spends in each stage."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum

from greenfast.search.verdict import Stage, StageSeconds


class Wait(StrEnum):
    """Waiting is not a stage, because the candidate does not cause it."""

    WAITING = "waiting"  # for the baseline's times, or for its turn at the safety check


class StageClock:
    """Always runs for exactly one stage, so that the stages add up to the whole.

    Attempts after a fault add to the stages of the first one. One thread uses a clock.
    `render_s`: the seconds that the text took, where the caller rendered it.
    """

    def __init__(self, render_s: float = 0.0, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seconds: dict[Stage | Wait, float] = {Stage.RENDER: render_s}
        self._stage: Stage | Wait = Stage.RENDER
        self._since = now()

    def enter(self, stage: Stage | Wait) -> None:
        """End the current stage and begin `stage`."""
        now = self._now()
        self._seconds[self._stage] = self._seconds.get(self._stage, 0.0) + now - self._since
        self._stage, self._since = stage, now

    def stop(self) -> StageSeconds:
        """The seconds so far of every stage that began."""
        self.enter(self._stage)
        order: tuple[Stage | Wait, ...] = (*Stage, *Wait)
        return tuple(
            (str(stage), self._seconds[stage]) for stage in order if stage in self._seconds
        )
