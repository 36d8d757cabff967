"""Whether times tell that launches leave work out when they repeat the launch before them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from greenfast.search.timing import Interval, median, median_interval

# Ratios of times, far above what caches and noise do to launches that differ in nothing else.
CHANGED, SEPARATE = 1.5, 2.0
LEAST_GAIN_US = 1.5  # of the shortest launch: more than a launch of 2 us varies


@dataclass(frozen=True)
class Ratio:
    """Times in us of launches that must do all their work, and of those that repeat a launch."""

    when: str
    slow: Sequence[float]
    fast: Sequence[float]
    largest: float

    @property
    def interval(self) -> Interval:
        return median_interval(
            [math.log(long / short) for long, short in zip(self.slow, self.fast, strict=True)]
        )

    @property
    def suspicion(self) -> str:
        """Why the times are suspicious; empty if they are not.

        Other work on the machine makes a launch longer and none shorter, so the shortest launches
        tell where it hides the rest. They also tell of a kernel that leaves work out now and then.
        """
        if self.interval.low > math.log(self.largest):
            slow_us, fast_us, which = median(self.slow), median(self.fast), "launches"
        else:
            slow_us, fast_us, which = min(self.slow), min(self.fast), "the shortest launches"
            if slow_us <= self.largest * fast_us or slow_us - fast_us < LEAST_GAIN_US:
                return ""
        return (
            f"{which} {self.when} take {slow_us / fast_us:.1f} times as long ({slow_us:.2f} us) as "
            "those that repeat the launch before them, so timed launches leave work out"
        )
