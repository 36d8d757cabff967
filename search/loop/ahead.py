"""How many candidates a search on GPUs keeps in flight.

Enough that a GPU always has one waiting, and no more: a strategy chooses without the outcomes of
candidates in flight, so each further one is chosen worse. By Little's law, a GPU does not wait
while their number is its rate times the seconds that a candidate takes before it reaches the GPU.
Kernels of microseconds need all that the compilers can make, and a kernel of a long sequence a few.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from greenfast.search.loop.evaluate import Evaluated
from greenfast.search.verdict import Stage, StageSeconds

BEFORE_GPU = (Stage.RENDER, Stage.COMPILE, Stage.PTXAS)
FIRST = 8  # in flight for each GPU until its rate is known, if the workload is large
SPARE = 4  # for each GPU: one on it, one ready, and two whose outputs are judged
PATIENCE = 2.0  # times the mean: some candidates take far longer to compile
RECENT = 0.9  # weight of earlier candidates in the mean, for each new one
ENOUGH, MOST_RECENT = 8, 16  # intervals between outcomes that tell the rate of the GPUs


@dataclass
class Ahead:
    """Learns how long candidates take before they reach a GPU, and on it."""

    window: int  # candidates in flight, at most
    gpus: int
    is_large: bool  # whether a GPU is probably the limit (modelling.py)
    gpu_seconds: Callable[[], float]  # the occupation of all GPUs so far
    # The occupation at the latest outcomes, from the first candidate on that ran, which is usually
    # the baseline. Until then the GPU computes references, too.
    _at_s: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_RECENT + 1))
    _known: int = 0
    _before_s: float = 0.0  # mean of recent candidates

    def hear_timed(self) -> None:
        """A GPU is done with a candidate, whose evaluation may still wait for a safety check."""
        self._at_s.append(self.gpu_seconds())

    def hear(self, ended: Future[Evaluated], *, was_timed: bool) -> None:
        """Take an evaluation that has ended, unless it was broken off."""
        if not ended.cancelled() and ended.exception() is None:
            self.learn(ended.result().stage_seconds, was_timed=was_timed)

    def learn(self, seconds: StageSeconds, *, was_timed: bool = False) -> None:
        """Take a candidate whose outcome is known; one that was not compiled says nothing.

        `was_timed`: `hear_timed` has counted it.
        """
        own = dict(seconds)
        if Stage.COMPILE not in own:
            return
        before_s = sum(own.get(stage, 0.0) for stage in BEFORE_GPU)
        weight = min(RECENT, self._known / (self._known + 1))
        self._before_s = weight * self._before_s + (1 - weight) * before_s
        self._known += 1
        if not was_timed and (self._at_s or Stage.CORRECTNESS in own):
            self._at_s.append(self.gpu_seconds())

    def cores_are_scarce(self) -> bool | None:
        """Whether compilers cannot make enough for the GPUs; None: not known yet."""
        return None if self._rate() is None else self.room() == self.window

    def room(self) -> int:
        """Candidates that may be in flight."""
        rate = self._rate()
        if rate is None:
            return min(self.window, FIRST * self.gpus) if self.is_large else self.window
        if math.isinf(rate):
            return self.window
        return min(self.window, math.ceil(PATIENCE * rate * self._before_s) + SPARE * self.gpus)

    def _rate(self) -> float | None:
        """Candidates a second that the GPUs can take; None: not known yet."""
        intervals = len(self._at_s) - 1
        if not self._known or intervals < ENOUGH:
            return None
        spent_s = self._at_s[-1] - self._at_s[0]
        return self.gpus * intervals / spent_s if spent_s > 0 else math.inf
