"""A tuning's search judges what its bundle would hold: also what is slower on average."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confirmed_searches import ScatteringGpu, by_threads, starter
from test_run import ListSink

from greenfast.search.dispatch.times import is_servable, measured_trials
from greenfast.search.loop import serving
from greenfast.search.loop.evaluate import settled
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import (
    Failed,
    Outcome,
    Passed,
    Reason,
    Rejected,
    Stage,
    gate_result,
    performance_of,
)

# us: one candidate wins on both on average, another only on the small workload, where it leads.
SMALL = {(64, 1): 8.0, (64, 2): 4.0}
LARGE = {(64, 1): 8.0, (64, 2): 30.0}
WORKLOADS = ("N=96", "N=4099")


class GpuOfTwo(ScatteringGpu):
    """Times by the workload, too."""

    def __init__(self):
        super().__init__(None, between=0.0005, noise=0.0005)
        self.laws = {"N=96": by_threads(SMALL), "N=4099": by_threads(LARGE)}

    def law_at(self, problem):
        return self.laws[problem.case.name]

    def measure(self, program, cubin, problems, against=None, inspect=None):
        if against is not None:  # like a real GPU: with several workloads none is screened
            against = replace(against, to_the_end=True)
        return super().measure(program, cubin, problems, against, inspect)


@pytest.fixture(scope="module")
def start(album, artifacts, catalogue, toolchain):
    target = open_target(
        "emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 1, run_deadline_s=20.0)
    )
    return starter(album, target, toolchain)


class KeepingSink(ListSink):
    def __init__(self):
        super().__init__()
        self.results = []

    def settle(self, number, result):
        self.results.append((number, result))

    def all_settled(self, number):
        return [result for each, result in self.results if each == number]


def run(start, **request):
    sink = KeepingSink()
    _, result = start(GpuOfTwo(), sink, workloads=WORKLOADS, **request)
    by_values = {tuple(trial.candidate.values().values()): trial for trial in sink.trials}
    return sink, by_values[64, 2], result


@pytest.fixture(scope="module")
def tuned(start):
    return run(start, within_percent=3.0)


def test_a_candidate_that_wins_on_one_workload_only_is_judged_and_may_be_served(tuned):
    sink, special, _ = tuned
    assert isinstance(special.verdict, Rejected) and special.verdict.reason is Reason.SLOWER
    assert not is_servable(special.verdict)
    verdict = special.verdict
    for result in sink.all_settled(special.number):
        verdict = settled(verdict, result)
    assert isinstance(verdict, Rejected) and verdict.reason is Reason.SLOWER
    assert gate_result(verdict, Stage.SAFETY).outcome is Outcome.PASSED and is_servable(verdict)
    measured = {each.name: each.times_us for each in measured_trials(sink.trials, WORKLOADS)}
    assert measured[str(special.number)] == pytest.approx((4.0, 30.0), rel=0.02)


def test_a_search_that_stands_alone_judges_no_more_than_before(start):
    sink, special, _ = run(start)
    assert not sink.all_settled(special.number)


def test_one_that_is_not_safe_is_not_served_and_another_takes_its_place(start, monkeypatch):
    class Unsafe:
        def judge(self, subject):
            if subject.candidate.values() == {"threads": 64, "per_thread": 2}:
                return Failed("safety", "a race", Reason.RACE)
            return Passed("safety", "nothing found")

    monkeypatch.setattr(serving, "SafetyGate", Unsafe)
    sink, special, result = run(start, within_percent=3.0)
    verdict = special.verdict
    for each in sink.all_settled(special.number):
        verdict = settled(verdict, each)
    assert (verdict.stage, verdict.reason) == (Stage.SAFETY, Reason.RACE)
    assert result.ended == "completed" and not is_servable(verdict)


def test_weights_change_who_wins(start):
    heavy = run(start, weights=(50.0, 1.0))[1]
    assert not isinstance(heavy.verdict, Rejected)
    evidence = performance_of(heavy.verdict)
    expected = (0.4**50 * 3.0) ** (1 / 51)
    assert evidence.ratio_to_baseline == pytest.approx(expected, rel=0.02)
    assert evidence.ratio_interval[0] <= evidence.ratio_to_baseline <= evidence.ratio_interval[1]
