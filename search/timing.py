"""The timing protocol and its statistics, as pure functions that know no GPU.

Two kernels A and B are timed in blocks of four: ABBA or BAAB, at random. A drift that is linear in
time cancels. The unit of judgement is a block's log ratio. Its median has an exact interval from
the sign test, which assumes no distribution. The interval of one look has a confidence of 99 %, so
three looks at equal kernels call one of them faster or slower in at most 3 of 100 comparisons.

The interval does not cover the placement of code and data, which differs between processes. On an
H200, kernels of 5 us differed by up to 1.6 % from one process to another
(bench/results/h200/gpu_target.json).

Source: the order-statistic interval of a median, e.g. Conover, Practical Nonparametric Statistics,
section 3.2.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

CONFIDENCE = 0.99
LOOKS = (8, 16, 40)  # blocks after which a clear comparison ends; the last ends any
ALONE_SAMPLES = 20  # of a kernel with nothing to compare
SAME_BAND = 0.01
NOISY_HALF_WIDTH = 0.05
GRAPH_US = 200.0  # kernels shorter than this are timed in graphs that take at least as long
UNCOVERED_US = 10_000.0  # from here on the launch's own latency is less than 0.1 % of the time
LARGEST_GRAPH = 1024  # nodes of the shorter graph
RING_L2S = 3
LARGEST_RING = 512  # sets: tiny data is cold as far as these go
CLEARLY = 0.05  # a share of time: a lead whose interval lies beyond it is not refined in a race
SCREEN_BLOCKS = 4  # after which a race ends if in each of them the candidate was slower by this
SCREEN_RATIO = 1.3  # factor, or
FAR_FASTER = 0.5  # took at most this share of the baseline's time: a slow baseline costs most
# Standard deviation of a median log ratio from one process to the next, and the degrees of freedom
# of this estimate. Measured: 0.5 % over 12 candidates, 0.7 % for the one that scatters most
# (bench/results/h200/confirm.json).
PROCESS_SIGMA = 0.008
PROCESS_FREEDOM = 12


class Decision(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    AMBIGUOUS = "ambiguous"
    TOO_NOISY = "too_noisy"


@dataclass(frozen=True)
class Interval:
    """The median of block log ratios and its interval; below 0 is faster."""

    median: float
    low: float
    high: float

    @property
    def ratios(self) -> tuple[float, float, float]:
        """(low, median, high) as time ratios."""
        return math.exp(self.low), math.exp(self.median), math.exp(self.high)


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def geometric_mean(values: Iterable[float], weights: Sequence[float] = ()) -> float:
    """The mean of one or more positive values; a single value is returned as it is, bit for bit."""
    first, *others = values
    if not others:
        return first
    return math.exp(weighted_mean(tuple(map(math.log, (first, *others))), weights))


def weighted_mean(values: Sequence[float], weights: Sequence[float] = ()) -> float:
    """The mean; equal weights, or none, change no bit of it."""
    if len(set(weights)) <= 1:
        return sum(values) / len(values)
    terms = (weight * value for weight, value in zip(weights, values, strict=True))
    return sum(terms) / sum(weights)


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The sign test's interval for the median; infinite with too few values for the confidence."""
    ordered, count = sorted(values), len(values)
    tail, outside, cut = 0.0, 1.0 - confidence, 0
    while cut < count // 2:
        tail += math.comb(count, cut) / 2**count
        if 2 * tail > outside:
            break
        cut += 1
    if cut == 0:
        return Interval(median(ordered), -math.inf, math.inf)
    return Interval(median(ordered), ordered[cut - 1], ordered[count - cut])


def block_log_ratios(samples: Sequence[float], others: Sequence[float]) -> tuple[float, ...]:
    """One log ratio a block, from two times in us of each kernel; below 0: the first is faster."""
    blocks = min(len(samples), len(others)) // 2
    return tuple(
        (
            math.log(samples[2 * i])
            + math.log(samples[2 * i + 1])
            - math.log(others[2 * i])
            - math.log(others[2 * i + 1])
        )
        / 2
        for i in range(blocks)
    )


def combined(rows: Sequence[Sequence[float]], weights: Sequence[float] = ()) -> tuple[float, ...]:
    """The mean over the workloads of each block's log ratio, for the blocks that all have."""
    return tuple(weighted_mean(block, weights) for block in zip(*rows, strict=False))


def decide(log_ratios: Sequence[float]) -> tuple[Decision, Interval]:
    """FASTER or SLOWER when the interval excludes 0, SAME when it lies inside +-1 %.

    Otherwise AMBIGUOUS, or TOO_NOISY for a wide interval.
    """
    interval = median_interval(log_ratios)
    if (early := screened(log_ratios)) is not None:
        return early, Interval(interval.median, min(log_ratios), max(log_ratios))
    if interval.high < 0:
        return Decision.FASTER, interval
    if interval.low > 0:
        return Decision.SLOWER, interval
    if math.log(1 - SAME_BAND) <= interval.low and interval.high <= math.log(1 + SAME_BAND):
        return Decision.SAME, interval
    noisy = not interval.high - interval.low <= 2 * NOISY_HALF_WIDTH
    return (Decision.TOO_NOISY if noisy else Decision.AMBIGUOUS), interval


def screened(log_ratios: Sequence[float]) -> Decision | None:
    """SLOWER or FASTER where every one of a few blocks clearly is: no confidence. None: neither.

    A candidate with the baseline's time would need noise of 26 % of its time, in one direction, in
    every block.
    """
    if not SCREEN_BLOCKS <= len(log_ratios) < LOOKS[0]:
        return None
    if min(log_ratios) > math.log(SCREEN_RATIO):
        return Decision.SLOWER
    return Decision.FASTER if max(log_ratios) < math.log(FAR_FASTER) else None


def student(tail: float, freedom: float) -> float:
    """The quantile that Student's t exceeds with probability `tail`.

    Accurate to 1 in 1000 from 6 degrees of freedom on. Source: Abramowitz & Stegun, Handbook of
    Mathematical Functions, 26.7.5.
    """
    z = NormalDist().inv_cdf(1.0 - tail)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def across_processes(intervals: Sequence[Interval]) -> tuple[Decision, Interval]:
    """The decision over fresh processes, each with the interval of its own blocks.

    FASTER and SLOWER need two things: every process agrees by itself, and the mean of their medians
    is further from 0 than processes scatter. Three processes are too few to estimate their scatter,
    so it is moderated by an earlier estimate (Smyth, Linear models and empirical Bayes methods,
    2004). SAME: every process within +-1 %.
    """
    mean, half = mean_of_processes([interval.median for interval in intervals])
    low = min(mean - half, *(interval.low for interval in intervals))
    high = max(mean + half, *(interval.high for interval in intervals))
    whole = Interval(mean, low, high)
    if high < 0 or low > 0:
        return (Decision.FASTER if high < 0 else Decision.SLOWER), whole
    if all(
        math.log(1 - SAME_BAND) <= interval.low and interval.high <= math.log(1 + SAME_BAND)
        for interval in intervals
    ):
        return Decision.SAME, whole
    return (
        Decision.TOO_NOISY if not high - low <= 2 * NOISY_HALF_WIDTH else Decision.AMBIGUOUS
    ), whole


def mean_of_processes(medians: Sequence[float]) -> tuple[float, float]:
    """(mean, half of its interval) of processes' median log ratios, with the scatter moderated."""
    count = len(medians)
    mean = sum(medians) / count
    freedom = PROCESS_FREEDOM + count - 1
    variance = (
        PROCESS_FREEDOM * PROCESS_SIGMA**2 + sum((value - mean) ** 2 for value in medians)
    ) / freedom
    return mean, student((1.0 - CONFIDENCE) / 2, freedom) * math.sqrt(variance / count)


def race(
    time_one: Callable[[], float],
    time_other: Callable[[], float],
    seed: int,
    go_on: Callable[[], bool] = lambda: True,
    looks: Sequence[int] = LOOKS,
    screen: bool = False,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Times of both kernels in ABBA blocks, with early looks.

    A kernel that is slower for certain is dropped at the next look. One that is `CLEARLY` faster
    needs no finer interval before its confirmation. All others get all blocks. Before the first
    look only the screen, where requested, can end a race. At each look the race ends if `go_on`
    returns False.
    """
    order = random.Random(seed)
    samples: list[float] = []
    others: list[float] = []
    for look in looks:
        while len(samples) < 2 * look:
            first, second = ((time_one, samples), (time_other, others))[:: order.choice((1, -1))]
            for time, kept in (first, second, second, first):
                kept.append(time())
            if (
                screen
                and len(samples) == 2 * SCREEN_BLOCKS < 2 * look
                and screened(block_log_ratios(samples, others)) is not None
            ):
                return tuple(samples), tuple(others)
        decision, interval = decide(block_log_ratios(samples, others))
        clear = decision is Decision.SLOWER or (
            decision is Decision.FASTER and interval.high < math.log(1 - CLEARLY)
        )
        if clear or not go_on():
            break
    return tuple(samples), tuple(others)


def alone(
    time_one: Callable[[], float], go_on: Callable[[], bool] = lambda: True
) -> tuple[float, ...]:
    """Times of a kernel without an opponent."""
    samples: list[float] = []
    while len(samples) < ALONE_SAMPLES and (len(samples) < LOOKS[0] or go_on()):
        samples.append(time_one())
    return tuple(samples)


def graph_nodes(estimate_us: float, sets: int = 1) -> int:
    """N of the graphs of N and 2N nodes; 0: long enough to be launched alone.

    A graph uses every set of a ring.
    """
    if estimate_us >= GRAPH_US:
        return 0
    return max(sets, min(LARGEST_GRAPH, math.ceil(GRAPH_US / max(estimate_us, 0.05))))


def ring_sets(data_bytes: int, l2_bytes: int, mode: str) -> int:
    """The number of input sets that launches use in turn.

    At least 3x the L2 for `cold` (or `LARGEST_RING`), one for `hot`.
    """
    if mode == "hot" or not data_bytes:
        return 1
    return min(LARGEST_RING, max(1, math.ceil(RING_L2S * l2_bytes / data_bytes)))


def default_mode(data_bytes: int, l2_bytes: int) -> str:
    """`cold` for data above half the L2, else `hot`.

    Smaller kernels run between neighbours that leave their data in L2.
    """
    return "cold" if 2 * data_bytes > l2_bytes else "hot"


def floor_us(flop: float, data_bytes: float, flop_per_us: float, bytes_per_us: float) -> float:
    """The least time of compulsory work at the peaks; an unknown peak of 0 bounds nothing."""
    return max(
        flop / flop_per_us if flop_per_us else 0.0,
        data_bytes / bytes_per_us if bytes_per_us else 0.0,
    )
