"""Searches that end early, and searches that begin with nothing."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import pytest
import store_values as values

from greenfast.app.views.start import start_of
from greenfast.search.devices.facts import device
from greenfast.search.errors import UsageError
from greenfast.search.loop.feedback import told_of
from greenfast.search.loop.plan import Neighbour, SearchRequest, make_plan
from greenfast.search.loop.start import make_strategy
from greenfast.search.loop.stopping import Stopping
from greenfast.search.space.candidate import Origin, OriginKind
from greenfast.search.space.space import Space
from greenfast.search.strategies.base import Infeasible, Objective
from greenfast.search.strategies.prior import History


def _learn(rule, *logs):
    verdict = values.accepted(1, 90.0)
    for log_ratio in logs:
        rule.learn(Infeasible() if log_ratio is None else Objective(log_ratio), verdict)
    return rule.why


def test_a_search_ends_after_so_many_trials_without_a_gain():
    rule = Stopping(3, None)
    assert _learn(rule, 0.0, 0.2, None) == "", "two trials after the best"
    assert _learn(rule, -0.1, -0.1, 0.3) == "", "a gain counts anew, an equal time is none"
    rule.learn(None, values.accepted(1, 90.0))
    assert rule.why == "", "a fault says nothing of a candidate"
    assert _learn(rule, None) == "no gain in the last 3 trials"


def test_nothing_ends_before_a_candidate_is_correct():
    assert _learn(Stopping(2, None), None, None, None, None) == ""


def test_an_extended_search_counts_anew():
    rule = Stopping(1, None)
    assert _learn(rule, 0.0, 0.1)
    rule.go_on()
    assert rule.why == "" and _learn(rule, 0.1)


def test_a_search_ends_when_its_best_is_close_to_the_bound(monkeypatch):
    close, far, unknown = (
        SimpleNamespace(time_median_us=time_us, bound_us=bound_us, weight=1.0, workload="mission")
        for time_us, bound_us in ((10.4, 10.0), (11.0, 10.0), (10.0, 0.0))
    )
    for timing, ends in ((unknown, False), (far, False), (close, True)):
        monkeypatch.setattr(
            "greenfast.search.loop.stopping.performance_of",
            lambda verdict, timing=timing: SimpleNamespace(timings=(timing,)),
        )
        rule = Stopping(None, 5.0)
        assert _learn(rule, 0.0) == (
            "the best candidate is within 4.0 % of the physical bound" if ends else ""
        )


@pytest.mark.parametrize(
    ("request_of", "sentence"),
    [
        ({"trials": 0}, "budget.trials must be between 1 and 1,000,000; got 0"),
        (
            {"seconds": math.nan},
            "budget.seconds must be above 0 and at most 2,592,000; got nan",
        ),
        ({"no_gain": 0}, "budget.no_gain must be between 1 and 1,000,000 trials; got 0"),
        ({"bound_percent": -1.0}, "budget.within_percent must be between 0 and 1000; got -1"),
        ({"bound_percent": math.nan}, "budget.within_percent must be between 0 and 1000; got nan"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(album, request_of, sentence):
    with pytest.raises(UsageError) as error:
        make_plan(SearchRequest("axpy", **request_of), album)
    assert error.value.code == "bad_budget" and error.value.message == sentence


@pytest.fixture
def context(album):
    kernel = album.kernel("axpy")
    return SimpleNamespace(
        kernel=kernel,
        compiled=kernel.workload("line").compile_time(kernel),
        target=SimpleNamespace(space=lambda *given: Space(*given, device("h200"))),
    )


def _first(plan, context):
    return make_strategy(plan, context).ask().candidate


def test_a_cold_search_has_no_presets_and_no_history(album, context):
    warm, cold = (
        make_plan(SearchRequest("axpy", templates=("right",), seed=3, cold=cold), album)
        for cold in (False, True)
    )
    assert (warm.reuse, cold.reuse) == (True, False)
    assert _first(warm, context).origin.kind is OriginKind.PRESET
    assert _first(cold, context).origin.kind is OriginKind.SAMPLED
    assert (start_of(warm), start_of(cold)) == (
        "warm: presets first",
        "cold: no presets, no history",
    )


def test_a_cold_strategy_does_not_hear_of_the_baseline(album):
    plan = make_plan(SearchRequest("axpy", templates=("right",), cold=True), album)
    trial = dataclasses.replace(values.trial(0, values.accepted(0, 90.0)), number=0)
    assert told_of(trial, plan) is None
    assert told_of(trial, dataclasses.replace(plan, cold=False)) == Objective(0.0)


def test_the_best_of_other_scopes_comes_first_and_is_named(album, context):
    seen = []

    def neighbours_of(plan):
        seen.append(plan)
        space = Space(context.kernel.template("right"), context.compiled, device("h200"))
        point = tuple(space.points)[-1]
        seeded = dataclasses.replace(
            _first(plan, context), parameters=point, origin=Origin(OriginKind.SEEDED)
        )
        return (Neighbour(seeded, "long on h100"),)

    request = SearchRequest("axpy", templates=("right",), seed=3)
    plan = make_plan(request, album, neighbours_of=neighbours_of)
    assert _first(plan, context).origin.kind is OriginKind.SEEDED
    assert start_of(plan) == "warm: the best of other scopes first (long on h100), then presets"
    cold = make_plan(dataclasses.replace(request, cold=True), album, neighbours_of=neighbours_of)
    assert cold.neighbours == () and len(seen) == 1


def test_outcomes_of_other_scopes_reach_the_strategy_of_a_warm_search_only(album, context):
    space = Space(context.kernel.template("right"), context.compiled, device("h200"))
    times = [(point, 1.0 + number) for number, point in enumerate(space.points)]
    history = History.of_times("right", times)
    plan = make_plan(SearchRequest("axpy", templates=("right",), seed=3), album)
    seeded = dataclasses.replace(_first(plan, context), parameters=times[0][0])
    warm = dataclasses.replace(plan, neighbours=(Neighbour(seeded, "h100", history.text()),))
    assert make_strategy(warm, context).options.histories == (history,)
    assert start_of(warm) == (
        "warm: the best of other scopes first (h100), then presets; "
        f"the model knows {len(times)} outcomes of theirs"
    )
    cold = dataclasses.replace(warm, cold=True)
    assert make_strategy(cold, context).options.histories == ()
