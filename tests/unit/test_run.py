"""The search loop on the emulator with axpy: budgets, order, resumption, cancel, faults."""

from __future__ import annotations

import os
import resource
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from contexts import plan_context
from slow_cases import quick_first

from greenfast.search.cpu_time import process_s
from greenfast.search.errors import Fault
from greenfast.search.loop.comparison import Confirmation, Peer
from greenfast.search.loop.confirmation import prepared
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import Control, Ended, History, Pending
from greenfast.search.strategies.base import Proposal
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import Faulted, GateResult, Green, Reason, Rejected, Trial


class ListSink:
    """A sink in memory: what the database would hold."""

    def __init__(self, control=lambda sink: Control.RUN):
        self.begun: list[tuple[int, Proposal]] = []
        self.trials: list[Trial] = []
        self.sources: dict[str, str] = {}
        self.confirmations: list[Confirmation] = []
        self.peers: list[Peer] = []
        self.settled: dict[int, GateResult] = {}
        self._control = control

    def begin(self, begun):
        self.begun += begun

    def record(self, records):
        for trial, source in records:
            self.trials.append(trial)
            if source is not None:
                self.sources[source.digest] = source.text

    def confirm(self, confirmation):
        self.confirmations.append(confirmation)

    def settle(self, number, result):
        self.settled[number] = result

    def beside(self, peer):
        self.peers.append(peer)

    def control(self, spent_s):
        return self._control(self)

    def history(self):
        done = {trial.number for trial in self.trials}
        pending = tuple(
            Pending(number, proposal.candidate, proposal.sampler, 1)
            for number, proposal in self.begun
            if number not in done
        )
        return History(tuple(self.trials), pending, 1.0)


@pytest.fixture(scope="module")
def emulator(artifacts, catalogue):
    return open_target(
        "emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 1, run_deadline_s=8.0)
    )


NO_HISTORY = History()


@pytest.fixture
def start(album, emulator, toolchain):
    def run(sink, history=NO_HISTORY, catalogue=album, **request) -> tuple[SearchRun, object]:
        plan = make_plan(
            SearchRequest(
                "axpy", **{"templates": ("right",), "seed": 3, "strategy": "random", **request}
            ),
            catalogue,
        )
        context = plan_context(catalogue, plan, emulator, toolchain)
        search = SearchRun(plan, context, sink, history)
        return search, search.run()

    return run


def test_a_search_spends_its_budget_with_the_baseline_first(start):
    sink = ListSink()
    _, result = start(sink, trials=5)
    assert result.ended is Ended.COMPLETED
    assert [trial.number for trial in sink.trials] == [0, 1, 2, 3, 4]
    assert len({trial.candidate.digest for trial in sink.trials}) == 5
    assert all(isinstance(trial.verdict, Green) for trial in sink.trials)
    assert sink.trials[0].candidate.origin.preset == "plain"
    ratios = [trial.verdict.gates[2].evidence.ratio_to_baseline for trial in sink.trials]
    assert ratios[0] is None and all(ratio > 0 for ratio in ratios[1:])


@pytest.mark.slow
def test_a_small_space_ends_when_every_candidate_was_tried(start, album):
    sink = ListSink()
    _, result = start(sink, trials=100)
    assert (result.ended, result.why) == (Ended.COMPLETED, "every valid candidate was tried")
    assert len(sink.trials) == 11  # 4 x 3 points, one of them excluded by a constraint


@pytest.mark.slow
@pytest.mark.parametrize("strategy", quick_first(["random", "tpe", "nsga2"], 1))
def test_the_same_plan_makes_the_same_choices_however_fast_each_was(start, strategy):
    runs = []
    for _ in range(2):
        sink = ListSink()
        start(sink, trials=8, strategy=strategy)
        runs.append([trial.candidate.digest for trial in sink.trials])
    assert runs[0] == runs[1]


def test_time_is_a_budget_too(start):
    sink = ListSink()
    _, result = start(sink, History(spent_s=60.0), seconds=60.001)  # what was spent before counts
    assert (result.ended, result.why) == (Ended.COMPLETED, "the budget is spent")
    assert len(sink.trials) <= 2


def test_a_pause_lets_what_is_in_flight_finish_and_a_resumed_search_goes_on(start):
    first = ListSink(lambda sink: Control.PAUSE if len(sink.trials) >= 3 else Control.RUN)
    _, result = start(first, trials=8)
    assert result.ended is Ended.PAUSED
    assert len(first.begun) == len(first.trials) < 8
    second = ListSink()
    _, result = start(second, first.history(), trials=8)
    assert result.ended is Ended.COMPLETED
    numbers = [trial.number for trial in (*first.trials, *second.trials)]
    digests = [trial.candidate.digest for trial in (*first.trials, *second.trials)]
    assert numbers == list(range(8)) and len(set(digests)) == 8


def children_s() -> float:
    """Processor time of all children: those that have ended, and those that still run.

    A compiling child has what it needed for earlier tests, and is ended by a cancel.
    """
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    pids = {int(pid) for file in running for pid in file.read_text().split()}
    return usage.ru_utime + usage.ru_stime + sum(map(process_s, pids))


def test_a_cancel_ends_what_is_in_flight_at_once(start, broken_kernel, emulator, monkeypatch):
    endless = broken_kernel(
        "right.cu.j2", "for (int step", "volatile int on = 1; while (on) { }\n    for (int step"
    )
    cancelled = []  # when, a second after the first trial has begun
    spent_s = []  # processor time of children by then, compilers' too

    def control(sink):
        if sink.begun and not cancelled:
            cancelled.append(time.monotonic() + 1.0)
        late = cancelled and time.monotonic() > cancelled[0]
        if late and not spent_s:
            spent_s.append(children_s())
        return Control.CANCEL if late else Control.RUN

    calls, interrupt = [], emulator.interrupt

    def misses_once():
        """As an interrupt that comes while no child runs: the next one starts after it."""
        calls.append(time.monotonic())
        if len(calls) > 1:
            interrupt()

    monkeypatch.setattr(emulator, "interrupt", misses_once)
    sink = ListSink(control)
    _, result = start(sink, catalogue=endless, trials=4)
    assert result.ended is Ended.CANCELLED
    assert sink.trials == [] and sink.begun
    # Without the cancel each run without end takes the 8 s of processor time that it is given.
    assert children_s() - spent_s[0] < 8
    assert threading.active_count() < 10


def test_the_others_are_checked_beside_the_baseline_and_compared_with_it(
    start, emulator, monkeypatch
):
    execute, measure, beside, waited = emulator.execute, emulator.measure, threading.Event(), []
    executed: set[str] = set()

    def executes(program, problems):
        yield from execute(program, problems)
        executed.add(program.source.digest)
        if len(executed) > 1:
            beside.set()

    def measures(*args, **more):
        waited.append(beside.wait(20.0))
        return measure(*args, **more)

    monkeypatch.setattr(emulator, "execute", executes)
    monkeypatch.setattr(emulator, "measure", measures)
    sink = ListSink()
    start(sink, trials=3)
    assert waited[0], "nobody was executed while the baseline was evaluated"
    assert [trial.number for trial in sink.trials] == [0, 1, 2]
    ratios = [trial.verdict.gates[2].evidence.ratio_to_baseline for trial in sink.trials]
    assert ratios[0] is None and all(ratio > 0 for ratio in ratios[1:])


def test_who_waits_for_the_baseline_is_let_go_by_a_cancel(start, emulator, monkeypatch):
    timing, interrupted = threading.Event(), threading.Event()

    def measures(*args, **more):  # the baseline: it comes to no end of its own
        timing.set()
        assert interrupted.wait(20.0)
        raise Fault("interrupted", code="interrupted")

    monkeypatch.setattr(emulator, "measure", measures)
    monkeypatch.setattr(emulator, "interrupt", interrupted.set)
    sink = ListSink(
        lambda sink: Control.CANCEL if timing.is_set() and len(sink.begun) > 1 else Control.RUN
    )
    _, result = start(sink, trials=4)
    assert result.ended is Ended.CANCELLED and sink.trials == []


def test_without_a_right_baseline_the_others_are_compared_with_nothing(
    start, emulator, monkeypatch
):
    known, measure = ListSink(), emulator.measure
    start(known, trials=1)

    def measures(program, *args, **more):
        if program.source.digest == known.trials[0].source_digest:
            raise Fault("the clock is gone", code="clock_gone")
        return measure(program, *args, **more)

    monkeypatch.setattr(emulator, "measure", measures)
    sink = ListSink()
    start(sink, trials=3)
    assert (
        isinstance(sink.trials[0].verdict, Faulted) and sink.trials[0].verdict.code == "clock_gone"
    )
    assert [trial.verdict.gates[2].evidence.ratio_to_baseline for trial in sink.trials[1:]] == [
        None,
        None,
    ]


def test_what_was_in_flight_when_a_worker_died_is_run_again_under_its_number(start):
    whole = ListSink()
    start(whole, trials=6)
    kept = whole.trials[:3]
    lost = [
        Pending(number, proposal.candidate, proposal.sampler, 1)
        for number, proposal in whole.begun[3:5]
    ]
    second = ListSink()
    start(second, History(tuple(kept), tuple(lost), 0.5), trials=6)
    assert [trial.number for trial in second.trials] == [3, 4, 5]
    assert [trial.candidate.digest for trial in second.trials[:2]] == [
        pending.candidate.digest for pending in lost
    ]


def test_a_candidate_that_killed_three_workers_is_set_aside_as_our_fault(start):
    whole = ListSink()
    start(whole, trials=3)
    deadly = Pending(2, whole.trials[2].candidate, {}, 3)
    second = ListSink()
    start(second, History(tuple(whole.trials[:2]), (deadly,), 0.0), trials=3)
    assert (
        isinstance(second.trials[0].verdict, Faulted)
        and second.trials[0].verdict.code == "worker_died"
    )


def test_a_source_that_was_tried_under_another_spelling_is_no_new_trial(start, broken_kernel):
    broken_kernel("right.toml", "ceil_div(N, threads * per_thread)", "ceil_div(N, threads)")
    blind = broken_kernel("right.cu.j2", "{{ per_thread }}", "1")
    sink = ListSink()
    _, _result = start(sink, catalogue=blind, trials=50)
    assert len({trial.source_digest for trial in sink.trials}) == len(sink.trials)


def test_five_faults_in_a_row_end_the_search_and_blame_nobody(start, toolchain, monkeypatch):
    def broken(*_):
        raise Fault("the disk is gone", code="disk_gone")

    monkeypatch.setattr(toolchain, "compile", broken)
    sink = ListSink()
    search, result = start(sink, trials=9)
    assert result.ended is Ended.FAILED
    assert [type(trial.verdict) for trial in sink.trials] == [Faulted] * 5
    assert result.why == "5 faults in a row. The last one (disk_gone): the disk is gone."
    assert search.strategy._best == {}


def test_a_resumed_search_tries_again_what_a_fault_kept_from_a_verdict(
    start, toolchain, monkeypatch
):
    def broken(*_):
        raise Fault("the disk is gone", code="disk_gone")

    sink = ListSink()
    with monkeypatch.context() as during:
        during.setattr(toolchain, "compile", broken)
        start(sink, strategy="exhaustive", baseline="none", trials=17)
    assert len(sink.trials) == 5
    _, result = start(
        sink, sink.history(), strategy="exhaustive", baseline="none", trials=17
    )  # 11 valid candidates
    assert (result.ended, result.why) == (Ended.COMPLETED, "every valid candidate was tried")
    green = [trial.candidate.digest for trial in sink.trials if isinstance(trial.verdict, Green)]
    assert len(set(green)) == len(green) == 11
    assert [trial.number for trial in sink.trials] == list(range(16))


def test_wrong_candidates_are_recorded_with_their_evidence_and_told_as_infeasible(start):
    sink = ListSink()
    _search, result = start(
        sink, templates=("broken",), baseline="right:plain", trials=6, seed=2
    )  # none of these is endless
    assert result.ended is Ended.COMPLETED
    rejected = [trial for trial in sink.trials if isinstance(trial.verdict, Rejected)]
    assert rejected and all(trial.verdict.sentence for trial in rejected)
    assert isinstance(sink.trials[0].verdict, Green)


def test_what_earlier_checks_passed_is_judged_again_before_a_resumed_search_ends(start):
    first = ListSink()
    start(first, trials=2)
    earlier = first.trials[1]
    wrong = replace(earlier.candidate, template="broken", parameters=(("defect", "zeros"),))
    trials = (first.trials[0], replace(earlier, candidate=wrong))
    sink = ListSink()
    history = History(trials, older=frozenset({1}))
    _, result = start(sink, history, trials=2, templates=("right", "broken"))
    assert sink.trials == [] and result.ended is Ended.COMPLETED
    assert list(sink.settled) == [1] and sink.settled[1].reason is Reason.WRONG_VALUES
    assert result.closing.startswith("today's checks reject what earlier ones passed: 1")


def test_another_text_than_the_recorded_one_is_not_judged_in_its_place(start):
    sink = ListSink()
    search, _ = start(sink, trials=1)
    (trial,) = sink.trials
    assert prepared(search.context, trial.candidate, trial.source_digest).source.digest
    with pytest.raises(Fault, match="template right gives another text"):
        prepared(search.context, trial.candidate, "0" * 64)
