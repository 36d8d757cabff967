"""How far a tuning's kernels may be from the best of each workload."""

from __future__ import annotations

from greenfast.search.errors import UsageError

DEFAULT_WITHIN_PERCENT = 3.0
LARGEST_WITHIN_PERCENT = 100.0


def check_within(percent: float) -> float:
    """The tolerance as a share; UsageError `bad_within` outside of 0 to 100 %."""
    if not 0 <= percent <= LARGEST_WITHIN_PERCENT:
        raise UsageError(
            f"the tolerance of a tuning is {percent:g} %; it must be between 0 and "
            f"{LARGEST_WITHIN_PERCENT:g} %, and is 3 % by default",
            code="bad_within",
        )
    return percent / 100
