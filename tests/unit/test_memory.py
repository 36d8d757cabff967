"""Which verdicts hold in another search of the same scope."""

from __future__ import annotations

import pytest

from greenfast.search.loop.memory import NEVER_REPEATED, Recalled, may_repeat
from greenfast.search.loop.other_gpus import as_beside
from greenfast.search.verdict import (
    Accepted,
    Faulted,
    Green,
    Passed,
    PerformanceEvidence,
    Reason,
    Rejected,
    Skipped,
    TimeKind,
    Timing,
    Unavailable,
)


def timed(kind=TimeKind.MEASURED, ratio=0.8, safety=None):
    timing = Timing("line", 8.0, kind, "", samples=(8.0,) * 4, baseline_samples=(10.0,) * 4)
    result = Passed("performance", "", PerformanceEvidence((timing,), ratio, 1.0))
    gates = (
        Passed("ptxas", ""),
        Passed("correctness", ""),
        result,
        safety or Skipped("safety", ""),
    )
    return Green(gates)


@pytest.mark.parametrize(
    ("verdict", "here", "measured"),
    [
        (timed(), True, True),
        (Accepted(timed().gates), True, True),
        (timed(TimeKind.MODELLED), True, False),
        (timed(TimeKind.REPLAYED), True, False),
        (timed(ratio=None), True, False),  # nothing was timed beside it
        (Green((Passed("ptxas", ""),)), True, False),
        (Rejected("correctness", Reason.WRONG_VALUES, ""), True, True),
        (Rejected("performance", Reason.SLOWER, ""), True, True),
        (Rejected("performance", Reason.SAME, "", timed().gates), True, True),
        (Rejected("performance", Reason.SAME, ""), True, False),  # the baseline's machine code
        *((Rejected("performance", reason, ""), False, False) for reason in NEVER_REPEATED),
        (Faulted("performance", "gpu_lost", ""), False, False),
    ],
)
def test_a_measured_verdict_is_repeated_where_times_are_measured(verdict, here, measured):
    assert may_repeat(verdict, measures=False) is here
    assert may_repeat(verdict, measures=True) is measured


def test_a_baseline_is_measured_in_each_search_unless_it_is_wrong():
    assert not may_repeat(timed(), measures=True, is_baseline=True)
    assert may_repeat(timed(), measures=False, is_baseline=True)
    wrong = Rejected("correctness", Reason.WRONG_VALUES, "")
    assert may_repeat(wrong, measures=True, is_baseline=True)


def test_only_a_safety_that_could_not_be_judged_is_judged_again():
    assert Recalled("s", 1, timed(safety=Unavailable("safety", "no compiler"))).lacks_safety
    assert not Recalled("s", 1, timed()).lacks_safety
    assert not Recalled("s", 1, timed(safety=Passed("safety", ""))).lacks_safety


def test_a_time_of_another_search_is_moved_by_the_ratio_of_the_baselines():
    timings = timed().gates[2].evidence.timings
    today = (Timing("line", 15.0, TimeKind.MEASURED, ""),)
    assert as_beside(today, timings) == timings
    (moved,) = as_beside(today, timings, of_another_search=True)
    assert moved.time_median_us == pytest.approx(12.0)
