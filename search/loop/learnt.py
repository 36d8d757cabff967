"""What a search has learnt from its trials: the baseline's times, and which are faster."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from greenfast.search.acceptance import time_us_of
from greenfast.search.dispatch.times import is_correct
from greenfast.search.errors import Fault
from greenfast.search.loop.assignment import News
from greenfast.search.loop.closing import Served
from greenfast.search.loop.confirmation import Contender, contender_of
from greenfast.search.loop.evaluate import timings_of
from greenfast.search.loop.feedback import told_of
from greenfast.search.loop.plan import NO_BASELINE, SearchPlan
from greenfast.search.loop.stopping import Stopping
from greenfast.search.verdict import (
    Accepted,
    GateResult,
    PerformanceEvidence,
    Timing,
    Trial,
    weak_tests_of,
)

# A comparison with a baseline that is so many times slower is nearly all the baseline's. Of kernels
# below a millisecond compiling takes longer.
SLOW_BASELINE, LEAST_SLOW_US = 8.0, 1000.0
LOOK_S = 0.25  # how soon a wait for the baseline notices that the search ends


class Learnt:
    """`on_news` is called when the baseline's times or the best time change."""

    def __init__(self, plan: SearchPlan, on_news: Callable[[], None]) -> None:
        self._plan, self._on_news = plan, on_news
        self.baseline: tuple[Timing, ...] | None = None
        self._baseline_known = threading.Event()
        if plan.baseline == NO_BASELINE:
            self._baseline_known.set()
        self.measured_baseline: Contender | None = None
        self.contenders: list[Contender] = []  # measured, and shown to be faster than the baseline
        self.timed_elsewhere: set[int] = set()  # trials whose times another search measured
        self._served: list[Trial] = []  # of a tuning: correct, whether or not faster
        self.best_time_us = math.inf  # of those that were accepted
        self.weak_tests: tuple[str, ...] = ()  # of the kernel, as its first correct trial says
        self.stopping = Stopping(plan.no_gain, plan.bound_percent)

    def is_baseline(self, number: int) -> bool:
        return number == 0 and self._plan.baseline != NO_BASELINE

    @property
    def news(self) -> News:
        return News(self._baseline_known.is_set(), self.baseline, self.best_time_us)

    @property
    def is_confirmed(self) -> bool:
        """Whether the search measured, and its winner is timed again."""
        return self._plan.confirm and self.measured_baseline is not None

    @property
    def slow_baseline(self) -> str:
        """A sentence about a baseline that takes most of the GPU's time; empty without one."""
        baseline_us = time_us_of(self.baseline) if self.baseline else 0.0
        if baseline_us < max(LEAST_SLOW_US, SLOW_BASELINE * self.best_time_us):
            return ""
        return (
            f"the baseline took {baseline_us / self.best_time_us:.0f} times as long as the best "
            "candidate, and so most of the GPU's time; a search with a faster one (--baseline "
            "TEMPLATE:PRESET) compares more candidates"
        )

    def timed_baseline(self, stop: threading.Event) -> tuple[Timing, ...] | None:
        """The times of trial 0, once they are known; it was begun before any other.

        Fault `interrupted` once `stop` is set.
        """
        while not self._baseline_known.wait(LOOK_S):
            if stop.is_set():
                raise Fault("interrupted while the baseline was evaluated", code="interrupted")
        return self.baseline

    def hear_baseline(self, result: GateResult) -> None:
        """Publish the baseline's times before its safety check, which takes longer."""
        if isinstance(result.evidence, PerformanceEvidence) and result.evidence.is_ranked:
            self._know_baseline(result.evidence.timings)

    def learn(self, trial: Trial) -> None:
        if self.is_baseline(trial.number):
            self.measured_baseline = contender_of(trial, is_baseline=True)
            self._know_baseline(timings_of(trial.verdict))
        else:
            self._learn_time(trial)
        if self._plan.within_percent is not None and is_correct(trial.verdict):
            self._served.append(trial)
        self.weak_tests = self.weak_tests or weak_tests_of(trial.verdict)
        self.stopping.learn(told_of(trial, self._plan), trial.verdict)

    def without(self, wrong: set[int]) -> tuple[list[Contender], Served | None]:
        """The contenders, and what a tuning's bundle may hold, but for these trials."""
        contenders = [each for each in self.contenders if each.number not in wrong]
        within = self._plan.within_percent
        if within is None:
            return contenders, None
        served = tuple(trial for trial in self._served if trial.number not in wrong)
        return contenders, Served(served, within / 100)

    def _know_baseline(self, timings: tuple[Timing, ...] | None) -> None:
        self.baseline = timings
        self._baseline_known.set()
        self._on_news()

    def _learn_time(self, trial: Trial) -> None:
        elsewhere = trial.number in self.timed_elsewhere
        contender = contender_of(trial, False, self.baseline, of_another_search=elsewhere)
        if contender is None:
            return
        self.contenders.append(contender)
        if isinstance(trial.verdict, Accepted):
            self.best_time_us = min(self.best_time_us, contender.time_us)
            self._on_news()
