"""The rules that end a search early, against a plain count over random outcomes."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace

import pytest
import store_values as values

from greenfast.search.loop.stopping import Stopping
from greenfast.search.strategies.base import Infeasible, Objective

BOUND_US = 10.0


@pytest.fixture
def learn(monkeypatch):
    """Tell a rule an outcome: a log ratio, None for a wrong candidate, "fault" for a fault."""

    def evidence_of(outcome):
        if not isinstance(outcome, float):
            return None
        time_us = 2 * BOUND_US * math.exp(outcome)
        timing = SimpleNamespace(time_median_us=time_us, bound_us=BOUND_US, weight=1.0, workload="")
        return SimpleNamespace(timings=(timing,))

    monkeypatch.setattr("greenfast.search.loop.stopping.performance_of", evidence_of)

    def told(rule, outcome):
        kinds = {None: Infeasible(), "fault": None}
        rule.learn(kinds[outcome] if outcome in kinds else Objective(outcome), outcome)

    return told


def _drawn(dice):
    return dice.choice([None, "fault", *(dice.randrange(-8, 9) / 8 for _ in range(3))])


@pytest.mark.parametrize("seed", range(40))
def test_the_rules_end_a_search_when_a_plain_count_does(seed, learn):
    dice = random.Random(seed)
    no_gain = dice.choice([None, 1, 2, 5])
    percent = dice.choice([None, 0.0, 10.0, 50.0])
    rule, outcomes = Stopping(no_gain, percent), []
    for _ in range(25):
        outcomes.append(_drawn(dice))
        learn(rule, outcomes[-1])
        heard = [outcome for outcome in outcomes if outcome != "fault"]
        right = [outcome for outcome in heard if outcome is not None]
        best = min(right, default=math.inf)
        assert rule.best == best
        idle = len(heard) - 1 - heard.index(best) if right else 0
        stuck = no_gain is not None and bool(right) and idle >= no_gain
        close = percent is not None and 2 * math.exp(best) <= 1 + percent / 100
        assert rule.why.startswith("no gain") == stuck
        assert bool(rule.why) == (stuck or close)


def test_a_verdict_without_times_has_no_part_in_the_bound():
    rule = Stopping(None, 1000.0)
    rule.learn(Infeasible(), values.rejected())
    assert rule.why == ""
