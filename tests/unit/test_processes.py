"""What several processes say together: intervals, decisions, and how often they are right."""

from __future__ import annotations

import math
import random

import pytest

from bench.results import read_result
from greenfast.search.timing import (
    LOOKS,
    PROCESS_SIGMA,
    Decision,
    Interval,
    across_processes,
    block_log_ratios,
    decide,
    mean_of_processes,
    student,
)

BETWEEN = 0.008  # standard deviation of a median log ratio from one process to the next


def processes(rng, ratio, between=BETWEEN, noise=0.01, count=3):
    intervals = []
    for _ in range(count):
        offset = math.log(ratio) + rng.gauss(0, between)
        intervals.append(decide([offset + rng.gauss(0, noise) for _ in range(LOOKS[-1])])[1])
    return intervals


def decisions_of(ratio, seed, **law):
    rng = random.Random(seed)
    return [across_processes(processes(rng, ratio, **law))[0] for _ in range(100)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("between", [0.0, 0.003, BETWEEN])
def test_equal_kernels_are_called_faster_or_slower_in_at_most_5_of_100(between, seed):
    assert (
        sum(
            decision in (Decision.FASTER, Decision.SLOWER)
            for decision in decisions_of(1.0, seed, between=between)
        )
        <= 5
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_3_percent_slower_twin_is_called_slower_in_at_least_90_of_100_and_a_faster_one_faster(
    seed,
):
    assert decisions_of(1.03, seed).count(Decision.SLOWER) >= 90
    assert decisions_of(1 / 1.03, seed).count(Decision.FASTER) >= 90


def test_one_process_alone_would_call_equal_kernels_different_far_more_often():
    alone = [processes(random.Random(number), 1.0, count=1)[0] for number in range(200)]
    assert sum(interval.high < 0 or interval.low > 0 for interval in alone) > 40


def test_processes_that_contradict_each_other_decide_nothing():
    apart = [
        Interval(-0.05, -0.051, -0.049),
        Interval(-0.05, -0.051, -0.049),
        Interval(0.002, 0.001, 0.003),
    ]
    assert across_processes(apart)[0] in (Decision.AMBIGUOUS, Decision.TOO_NOISY)
    near = [
        Interval(-0.002, -0.004, 0.000),
        Interval(0.003, 0.001, 0.005),
        Interval(0.001, 0.0, 0.002),
    ]
    assert across_processes(near)[0] is Decision.SAME


def test_the_interval_holds_that_of_every_process_and_shrinks_with_more_of_them():
    rng = random.Random(4)
    intervals = processes(rng, 1.0)
    whole = across_processes(intervals)[1]
    assert all(whole.low <= interval.low and interval.high <= whole.high for interval in intervals)
    halves = [mean_of_processes([0.0] * count)[1] for count in (3, 6, 12, 24)]
    assert halves == sorted(halves, reverse=True) and halves[0] < 1.4 * 0.01


def test_the_mean_of_three_processes_lies_in_its_interval_as_often_as_it_says():
    rng, inside = random.Random(8), 0
    for _ in range(2000):
        mean, half = mean_of_processes([rng.gauss(0, PROCESS_SIGMA) for _ in range(3)])
        inside += abs(mean) <= half
    assert inside >= 0.985 * 2000


@pytest.mark.parametrize(
    ("tail", "freedom", "quantile"),
    [
        (0.005, 14, 2.9768),
        (0.005, 12, 3.0545),
        (0.025, 6, 2.4469),
        (0.005, 30, 2.7500),
        (0.025, 20, 2.0860),
    ],
)
def test_students_quantiles_are_those_of_the_tables(tail, freedom, quantile):
    assert student(tail, freedom) == pytest.approx(quantile, rel=1e-3)


def test_the_study_of_processes_follows_from_its_stored_samples():
    from bench.gpu.process_scatter import analysed

    stored = read_result("h200/confirm")
    for row in stored["rows"]:
        interval = decide(block_log_ratios(row["samples"], row["baseline_samples"]))[1]
        assert (interval.low, interval.median, interval.high) == pytest.approx(
            (row["low"], row["median"], row["high"]), abs=2e-5
        )
    assert analysed(stored["rows"]) == stored["found"]
    assert stored["found"]["difference_holds_0_process_as_unit"]["share"] >= 0.95
    assert stored["found"]["between_processes_sigma_percent"] <= 100 * PROCESS_SIGMA


def test_the_confirmation_of_the_search_on_the_h200_follows_from_its_stored_samples():
    (confirmation,) = read_result("h200/search")["confirmations"]
    assert confirmation["confirmed"]
    for comparison in confirmation["comparisons"]:
        intervals = [
            decide(block_log_ratios(timing["samples"], timing["baseline_samples"]))[1]
            for process in comparison["processes"]
            for timing in process["timings"]
        ]
        decision, whole = across_processes(intervals)
        assert decision == comparison["decision"]
        assert whole.ratios == pytest.approx(
            (comparison["ratio_low"], comparison["ratio"], comparison["ratio_high"])
        )
