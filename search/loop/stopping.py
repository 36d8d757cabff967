"""When a search ends before its budget: no gain for long, or a best time close to the bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

from greenfast.search.acceptance import weights_of
from greenfast.search.errors import UsageError
from greenfast.search.strategies.base import Objective, Told
from greenfast.search.timing import weighted_mean
from greenfast.search.verdict import Timing, Verdict, performance_of

LARGEST_NO_GAIN = 1_000_000  # trials
LARGEST_WITHIN = 1000.0  # percent


@dataclass
class Stopping:
    """The two rules, and what they need to know of the trials so far."""

    no_gain: int | None  # trials after the best one
    within_bound_percent: float | None
    trials: int = 0
    best: float = math.inf  # log ratio
    best_at: int = 0  # how many trials were known with the best one
    above_bound: float = math.inf  # of the best times: a factor, the mean over the workloads

    def learn(self, told: Told | None, verdict: Verdict) -> None:
        """Take the next trial, unless it is a fault, which is no evidence about a candidate."""
        if told is None:
            return
        self.trials += 1
        if not isinstance(told, Objective):
            return
        if told.log_ratio < self.best:
            self.best, self.best_at = told.log_ratio, self.trials
        evidence = performance_of(verdict)
        if evidence is not None:
            self.above_bound = min(self.above_bound, _above_bound(evidence.timings))

    def go_on(self) -> None:
        """Restart the count if the rule has ended the search, so that it can be extended."""
        if self.why:
            self.best_at = self.trials

    @property
    def why(self) -> str:
        """The reason to end the search; empty while there is none."""
        idle = self.trials - self.best_at
        if self.no_gain is not None and math.isfinite(self.best) and idle >= self.no_gain:
            return f"no gain in the last {idle:,} trials"
        percent = self.within_bound_percent
        if percent is not None and self.above_bound <= 1 + percent / 100:
            above = (self.above_bound - 1) * 100
            return f"the best candidate is within {above:.1f} % of the physical bound"
        return ""


def _above_bound(timings: tuple[Timing, ...]) -> float:
    """The mean factor above the bounds; infinite where one is unknown."""
    if not timings or not all(timing.bound_us > 0 for timing in timings):
        return math.inf
    logs = [math.log(timing.time_median_us / timing.bound_us) for timing in timings]
    return math.exp(weighted_mean(logs, weights_of(timings)))


def no_gain_of(no_gain: int | None) -> int | None:
    """The rule as given; UsageError `bad_budget` for a number that makes no sense."""
    if no_gain is not None and not 1 <= no_gain <= LARGEST_NO_GAIN:
        raise UsageError(
            f"budget.no_gain must be between 1 and {LARGEST_NO_GAIN:,} trials; got {no_gain}",
            code="bad_budget",
        )
    return no_gain


def bound_percent_of(within_bound_percent: float | None) -> float | None:
    """The rule as given; UsageError `bad_budget` for a number that makes no sense."""
    if within_bound_percent is not None and not 0 <= within_bound_percent <= LARGEST_WITHIN:
        raise UsageError(
            f"budget.within_percent must be between 0 and {LARGEST_WITHIN:g}; "
            f"got {within_bound_percent:g}",
            code="bad_budget",
        )
    return within_bound_percent
