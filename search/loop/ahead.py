"""How many candidates a search on GPUs keeps in flight.

Enough that a GPU always has one waiting, and no more: a strategy chooses without the outcomes of
candidates in flight, so each further one is chosen worse. By Little's law, a GPU does not wait
while their number is its rate times the seconds that a candidate takes before it reaches the GPU.
Kernels of microseconds need all that the compilers can make, and a kernel of a long sequence a few.
"""

from __future__ import annotations

import math
from concurrent.futures import Future
from dataclasses import dataclass

from greenfast.search.loop.evaluate import Evaluated
from greenfast.search.verdict import Stage, StageSeconds

BEFORE_GPU = (Stage.RENDER, Stage.COMPILE, Stage.PTXAS)
FIRST = 8  # in flight for each GPU until an outcome is known, if the workload is large
SPARE = 4  # for each GPU: one on it, one ready, and two whose outputs are judged
PATIENCE = 2.0  # times the mean: some candidates take far longer to compile
RECENT = 0.9  # weight of earlier candidates in the mean, for each new one


@dataclass
class Ahead:
    """Learns how long candidates take before they reach a GPU, and on it."""

    window: int  # candidates in flight, at most
    gpus: int
    is_large: bool  # whether a GPU is probably the limit (modelling.py)
    _known: int = 0
    _ran: int = 0  # of these: those that a GPU ran
    _before_s: float = 0.0  # mean of recent candidates

    def hear(self, ended: Future[Evaluated]) -> None:
        """Take an evaluation that has ended, unless it was broken off."""
        if not ended.cancelled() and ended.exception() is None:
            self.learn(ended.result().stage_seconds)

    def learn(self, seconds: StageSeconds) -> None:
        """Take a candidate whose outcome is known; one that was not compiled says nothing."""
        own = dict(seconds)
        if Stage.COMPILE not in own:
            return
        before_s = sum(own.get(stage, 0.0) for stage in BEFORE_GPU)
        weight = min(RECENT, self._known / (self._known + 1))
        self._before_s = weight * self._before_s + (1 - weight) * before_s
        self._known += 1
        self._ran += Stage.CORRECTNESS in own

    def cores_are_scarce(self, gpu_seconds: float) -> bool | None:
        """Whether compilers cannot make enough for the GPUs; None: no outcome is known yet."""
        return self.room(gpu_seconds) == self.window if self._ran else None

    def room(self, gpu_seconds: float) -> int:
        """Candidates that may be in flight; `gpu_seconds`: the occupation of all GPUs so far."""
        if not self._ran:
            return min(self.window, FIRST * self.gpus) if self.is_large else self.window
        if gpu_seconds <= 0:
            return self.window
        rate = self.gpus * self._known / gpu_seconds  # candidates a second that the GPUs can take
        return min(self.window, math.ceil(PATIENCE * rate * self._before_s) + SPARE * self.gpus)
