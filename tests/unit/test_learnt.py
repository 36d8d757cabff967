"""What a search says of its baseline."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from greenfast.search.loop.learnt import Learnt
from greenfast.search.verdict import TimeKind, Timing

PLAN = SimpleNamespace(baseline="wmma:stage2", no_gain=None, bound_percent=None)


def learnt(baseline_us, best_us):
    search = Learnt(PLAN, lambda: None)
    if baseline_us is not None:
        search.baseline = (Timing("long", baseline_us, TimeKind.MEASURED, "", (), ""),)
    search.best_time_us = best_us
    return search


def test_a_baseline_that_takes_most_of_the_time_is_named():
    sentence = learnt(73_000.0, 3_000.0).slow_baseline
    assert "took 24 times as long" in sentence and "--baseline TEMPLATE:PRESET" in sentence


@pytest.mark.parametrize(
    ("baseline_us", "best_us"),
    [(6_000.0, 3_000.0), (300.0, 10.0), (73_000.0, float("inf")), (None, 3_000.0)],
)
def test_another_baseline_is_not(baseline_us, best_us):
    assert learnt(baseline_us, best_us).slow_baseline == ""
