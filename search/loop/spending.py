"""The time that a search spends, and the budget of GPU seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from greenfast.search.errors import UsageError

BUDGET_SPENT = "the budget is spent"  # of trials or of seconds: a reason to end
LONGEST_GPU_SECONDS = 30 * 24 * 3600.0  # the sum over all GPUs


@dataclass(frozen=True)
class Spent:
    """The time that a search has taken so far, in all processes that ran it."""

    seconds: float
    gpu_seconds: float = 0.0  # its requests occupied GPUs for so long, summed over the GPUs


class Meter:
    """Adds the time of a run, from its beginning, to the time that the search took before."""

    def __init__(self, before: Spent, gpu_seconds: Callable[[], float]) -> None:
        """`gpu_seconds` returns how long the run's target has occupied GPUs."""
        self._before, self._gpu_seconds = before, gpu_seconds
        self._began_s, self._gpu_began_s = time.monotonic(), gpu_seconds()
        self._gpu_searched_s: float | None = None

    def end_trials(self) -> None:
        """The confirmation, which budgets leave alone, adds no GPU seconds from now on."""
        self._gpu_searched_s = self.spent().gpu_seconds

    def spent(self) -> Spent:
        seconds = self._before.seconds + time.monotonic() - self._began_s
        if self._gpu_searched_s is not None:
            return Spent(seconds, self._gpu_searched_s)
        return Spent(seconds, self._before.gpu_seconds + self._gpu_seconds() - self._gpu_began_s)


def gpu_budget(gpu_seconds: float | None, target: str, family: str) -> float | None:
    """The budget as given; UsageError `bad_budget` where it makes no sense."""
    if gpu_seconds is None:
        return None
    if not 0 < gpu_seconds <= LONGEST_GPU_SECONDS:
        raise UsageError(
            f"budget.gpu_seconds must be above 0 and at most {LONGEST_GPU_SECONDS:,.0f}; "
            f"got {gpu_seconds:g}",
            code="bad_budget",
            mend="give more than 0 GPU seconds, at most 30 days in sum",
        )
    if family != "cuda":
        raise UsageError(
            f"budget.gpu_seconds needs a target that uses GPUs, and {target} uses none",
            code="bad_budget",
            mend="give trials or seconds, or a target such as cuda:0",
        )
    return gpu_seconds


def gpu_budget_spent(gpu_seconds: float) -> str:
    """The reason to end, in place of BUDGET_SPENT."""
    unit = "GPU second" if gpu_seconds == 1 else "GPU seconds"
    return f"the budget of {gpu_seconds:,.15g} {unit} is spent"


def is_budget_spent(cause: str) -> bool:
    """Whether a search with that reason ended because a budget was spent."""
    return cause == BUDGET_SPENT or (cause.startswith("the budget of ") and cause.endswith("spent"))
