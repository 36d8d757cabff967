"""Confirmations on drawn times: the statistics of processes, and how searches end with them."""

from __future__ import annotations

import math
import random
import re
import threading
from dataclasses import replace

import pytest
from drawn_gpu import DrawnGpu
from test_run import ListSink

from bench.results import read_result
from greenfast.app.service.worker import Stop, StoppableSink
from greenfast.db.sink import StoreSink
from greenfast.db.store import Store
from greenfast.search.digest import canonical
from greenfast.search.errors import Fault
from greenfast.search.kernels.identity import passed_checks
from greenfast.search.loop import closing
from greenfast.search.loop.comparison import Peer
from greenfast.search.loop.confirmation import compared, contender_of
from greenfast.search.loop.evaluate import EvaluationContext, evaluate
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.run import Control, Ended, History, SearchRun
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import Execution
from greenfast.search.timing import (
    LOOKS,
    PROCESS_SIGMA,
    Decision,
    Interval,
    across_processes,
    block_log_ratios,
    decide,
    mean_of_processes,
    race,
    student,
)
from greenfast.search.verdict import (
    Accepted,
    Failed,
    Green,
    Outcome,
    Reason,
    TimeKind,
    Timing,
    gate_result,
)

BETWEEN = 0.008  # standard deviation of a median log ratio from one process to the next


# ---- what processes say together ----


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


# ---- searches that end with a confirmation ----


class ScatteringGpu(DrawnGpu):
    """Times by a law of the source's text; each process adds its own scatter to each source."""

    def __init__(self, time_us, between=0.002, noise=0.003, seed=1):
        super().__init__()
        self.time_us, self.between, self.noise = time_us, between, noise
        self.random = random.Random(seed)
        self.processes = 0
        self.offsets: dict[str, float] = {}
        self.on_measure = lambda program: None
        self.wrong_when = lambda program: False

    def fresh(self):
        self.processes += 1
        self.offsets.clear()

    def execute(self, program, problems):
        self.wrong = {program.digest} if self.wrong_when(program) else set()
        yield from super().execute(program, problems)

    def measure(self, program, cubin, problems, against=None, inspect=None):
        self.on_measure(program)
        measurements = []
        for problem in problems:
            if inspect is not None and (
                failure := inspect(
                    Execution(problem, "timed", self._outputs(program, problem), None)
                )
            ):
                return failure
            samples, others = self._times(program, 20), ()
            if against is not None:
                samples, others = race(
                    self._one(program),
                    self._one(against.program),
                    self.random.randrange(2**31),
                    looks=LOOKS[-1:] if against.to_the_end else LOOKS,
                    screen=not against.to_the_end,
                )
            median = sorted(samples)[len(samples) // 2]
            measurements.append(
                Timing(
                    problem.case.name,
                    median,
                    TimeKind.MEASURED,
                    "",
                    (("floor_us", 0.01),),
                    "drawn",
                    samples=samples,
                    baseline_samples=others,
                )
            )
        return tuple(measurements)

    def _one(self, program):
        return lambda: self._times(program, 1)[0]

    def _times(self, program, count):
        if program.digest not in self.offsets:
            self.offsets[program.digest] = self.random.gauss(0, self.between / math.sqrt(2))
        middle = self.time_us(program.text) * math.exp(self.offsets[program.digest])
        return tuple(middle * math.exp(self.random.gauss(0, self.noise)) for _ in range(count))


def by_threads(fast):
    """10 us, and what `fast` says for a number of threads a block and elements a thread."""

    def time_us(text):
        threads, per_thread = (
            int(re.search(rf"constexpr int {name} = (\d+);", text).group(1))
            for name in ("threads", "per_thread")
        )
        return fast.get((threads, per_thread), 10.0)

    return time_us


@pytest.fixture(scope="module")
def emulator(artifacts, catalogue):
    return open_target(
        "emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 1, run_deadline_s=20.0)
    )


NO_HISTORY = History()


@pytest.fixture
def start(album, emulator, toolchain):
    def run(gpu, sink, history=NO_HISTORY, more=None, **request):
        plan = make_plan(
            SearchRequest(
                "axpy",
                **{
                    "templates": ("right",),
                    "seed": 3,
                    "strategy": "random",
                    "trials": 50,
                    **request,
                },
            ),
            album,
        )
        kernel = album.kernel("axpy")
        workloads = tuple(kernel.workload(name) for name in plan.workloads)
        context = EvaluationContext(
            kernel,
            workloads[0].compile_time(kernel),
            workloads,
            gpu,
            toolchain,
            album.include_dirs,
            plan.limits,
            plan.seed,
            checker=emulator,
            **(more or {}),
        )
        search = SearchRun(plan, context, sink, history)
        return search, search.run()

    return run


TWO_FAST = {(64, 1): 8.0, (64, 2): 9.0}


def test_a_search_that_measures_ends_with_a_confirmed_winner_of_three_fresh_processes(start):
    gpu, sink = ScatteringGpu(by_threads(TWO_FAST)), ListSink()
    _, result = start(gpu, sink)
    (confirmation,) = sink.confirmations
    winner = next(trial for trial in sink.trials if trial.number == confirmation.trial)
    assert result.ended is Ended.COMPLETED and (result.why, result.closing) == (
        "every valid candidate was tried",
        confirmation.sentence,
    )
    assert confirmation.confirmed and gpu.processes == 3
    assert winner.candidate.values() == {"threads": 64, "per_thread": 1} and isinstance(
        winner.verdict, Accepted
    )
    first, second = confirmation.comparisons
    assert (first.against, first.other_trial, first.decision) == ("baseline", 0, "faster")
    assert (second.against, second.decision) == ("runner-up", "faster")
    assert first.ratio == pytest.approx(0.8, rel=0.01) and second.ratio == pytest.approx(
        8 / 9, rel=0.01
    )
    for comparison in confirmation.comparisons:
        assert len({process.seed for process in comparison.processes}) == 3
        assert {len(process.timings[0].samples) for process in comparison.processes} == {
            2 * LOOKS[-1]
        }


def test_anybody_can_compute_a_comparison_again_from_its_stored_samples(start):
    sink = ListSink()
    start(ScatteringGpu(by_threads(TWO_FAST)), sink)
    for comparison in sink.confirmations[0].comparisons:
        decision, interval = compared(comparison.processes)
        assert decision == comparison.decision
        assert interval.ratios == (comparison.ratio_low, comparison.ratio, comparison.ratio_high)
    canonical(sink.confirmations[0])


def test_a_tie_with_the_runner_up_is_called_one_and_both_are_listed(start):
    sink = ListSink()
    start(ScatteringGpu(by_threads({(64, 1): 8.0, (64, 2): 8.0}), between=0.001), sink)
    (confirmation,) = sink.confirmations
    assert confirmation.confirmed and confirmation.comparisons[1].decision in ("same", "ambiguous")
    assert (
        f"it ties with trial {confirmation.comparisons[1].other_trial}, the runner-up"
        in confirmation.sentence
    )
    assert confirmation.comparisons[1].other_trial != confirmation.trial


class CursedGpu(ScatteringGpu):
    """The search ranks (64, 1) first; fresh processes measure each candidate's own time."""

    def __init__(self, fresh, lucky=None, **law):
        super().__init__(
            self.law_of_this_process,
            between=0.001,
            **law,
        )
        self.first_law = by_threads(lucky or {(64, 1): 8.0, (64, 2): 8.5})
        self.fresh_law = by_threads(fresh)

    def law_of_this_process(self, text):
        return (self.first_law if self.processes == 0 else self.fresh_law)(text)


def points(sink):
    """Trial number -> (threads, elements a thread)."""
    return {trial.number: tuple(trial.candidate.values().values()) for trial in sink.trials}


# An H200's ratio of a winner and its runner-up: 1.031 [1.011, 1.048] in three processes.
SEEN = {(64, 1): 8.0 * 1.031, (64, 2): 8.0}


def test_a_runner_up_that_fresh_processes_show_to_be_faster_is_confirmed_in_the_winners_place(
    start,
):
    gpu, sink, compared = CursedGpu(SEEN), ListSink(), []
    _, result = start(
        gpu,
        sink,
        more={
            "compare_peers": lambda winner, cancelled: (
                compared.append(tuple(winner.candidate.values().values())) or ()
            )
        },
    )
    first, last = sink.confirmations
    assert (
        points(sink)[first.trial] == (64, 1)
        and points(sink)[last.trial] == (64, 2)
        and compared == [(64, 2)]
    )
    assert (
        first.comparisons[1].decision == "slower" and first.comparisons[1].other_trial == last.trial
    )
    assert (
        last.confirmed
        and [comparison.against for comparison in last.comparisons] == ["baseline"]
        and gpu.processes == 6
    )
    assert "it is slower than" in first.sentence and result.closing.endswith(last.sentence)


def test_who_takes_the_winners_place_gets_the_safety_verdict_that_it_was_spared(start):
    sink = ListSink()
    start(CursedGpu(SEEN), sink)
    ((number, judged),) = sink.settled.items()
    spared = contender_of(
        next(trial for trial in sink.trials if trial.number == number), is_baseline=False
    )
    assert spared.spared and number == sink.confirmations[-1].trial
    assert judged.outcome is Outcome.PASSED and "checked runs on emulator:h200" in judged.sentence


def test_at_most_three_are_confirmed_however_the_search_was_wrong(start):
    lucky = {(64, 1): 7.0, (64, 2): 7.5, (64, 4): 8.0, (32, 1): 8.5, (32, 2): 9.0}
    backwards = dict(zip(lucky, reversed(lucky.values()), strict=True))
    gpu, sink = CursedGpu(backwards, lucky), ListSink()
    start(gpu, sink)
    assert [points(sink)[confirmation.trial] for confirmation in sink.confirmations] == [
        (64, 1),
        (64, 2),
        (64, 4),
    ] and gpu.processes == 9
    assert [comparison.against for comparison in sink.confirmations[-1].comparisons] == [
        "baseline"
    ] and sink.confirmations[-1].confirmed


def test_a_tie_keeps_the_winner(start):
    gpu, sink = CursedGpu({(64, 1): 8.0, (64, 2): 7.96}), ListSink()
    start(gpu, sink)
    (confirmation,) = sink.confirmations
    assert (
        points(sink)[confirmation.trial] == (64, 1)
        and "it ties with" in confirmation.sentence
        and gpu.processes == 3
    )


def test_a_faster_runner_up_that_proves_wrong_gives_the_place_back(start):
    gpu, sink = CursedGpu(SEEN), ListSink()
    gpu.wrong_when = lambda program: gpu.processes > 3 and gpu.time_us(program.text) == 8.0
    start(gpu, sink)
    wrong, last = sink.confirmations
    assert points(sink)[wrong.trial] == (64, 2) and "on new inputs" in wrong.sentence
    assert points(sink)[last.trial] == (64, 1) and last.confirmed


def test_a_faster_runner_up_that_is_not_safe_contends_no_more(start, monkeypatch):
    race = Failed("safety", "a race", Reason.RACE)
    monkeypatch.setattr(closing, "safety_of", lambda context, contender: race)
    sink = ListSink()
    start(CursedGpu(SEEN), sink)
    ((number, judged),), (confirmation,) = sink.settled.items(), sink.confirmations
    assert judged is race and points(sink)[number] == (64, 2)
    assert points(sink)[confirmation.trial] == (64, 1) and [
        comparison.against for comparison in confirmation.comparisons
    ] == ["baseline"]


def test_the_store_follows_who_was_confirmed(start, tmp_path):
    search, _ = start(ScatteringGpu(by_threads(TWO_FAST)), ListSink(), confirm=False)
    plan, store = (
        replace(search.plan, confirm=True),
        Store.open(f"sqlite:///{tmp_path / 'searches.sqlite3'}"),
    )
    try:
        search_id = store.submit(plan).id
        claim = store.claim("a worker", 30.0, search_id)
        context = replace(search.context, target=CursedGpu(SEEN))
        SearchRun(
            plan, context, StoppableSink(StoreSink(store, claim, 30.0), Stop(1.0)), History()
        ).run()
        confirmation, best = store.confirmation(search_id).confirmation, store.best(search_id)
        assert (
            best.number == confirmation.trial
            and confirmation.confirmed
            and best.verdict == "accepted"
        )
        assert (best.parameters["threads"], best.parameters["per_thread"]) == (64, 2)
        assert store.search(search_id).best_time_us == best.time_median_us
        times = [
            item.time_median_us
            for item in store.trials(search_id).items
            if item.verdict == "accepted"
        ]
        assert min(times) < best.time_median_us  # what was faster in the search is not the best
        store.describe(claim, {"device": "h200", "toolchain": "nvrtc"})
        store.finish(claim, Ended.COMPLETED, "")
    finally:
        store.close()


def test_a_winner_that_was_only_lucky_is_not_confirmed(start):
    gpu, sink = ScatteringGpu(by_threads(TWO_FAST)), ListSink()
    first_us, fresh_us = by_threads(TWO_FAST), by_threads({})
    gpu.time_us = lambda text: first_us(text) if gpu.processes == 0 else fresh_us(text)
    _, result = start(gpu, sink)
    (confirmation,) = sink.confirmations
    assert not confirmation.confirmed and confirmation.comparisons[0].decision in (
        "same",
        "ambiguous",
    )
    assert (
        "is not confirmed in 3 fresh processes" in confirmation.sentence
        and result.ended is Ended.COMPLETED
    )


def test_a_winner_that_is_wrong_on_a_new_seed_is_not_confirmed_and_the_next_one_takes_its_place(
    start,
):
    gpu, sink = ScatteringGpu(by_threads(TWO_FAST)), ListSink()
    gpu.wrong_when = lambda program: gpu.processes == 2 and gpu.time_us(program.text) == 8.0
    compared = []
    start(
        gpu,
        sink,
        more={
            "compare_peers": lambda winner, cancelled: (
                compared.append(winner.candidate.values()) or ()
            )
        },
    )
    wrong, confirmation = sink.confirmations
    assert (
        not wrong.confirmed
        and wrong.comparisons == ()
        and "is not confirmed: on new inputs" in wrong.sentence
    )
    assert (
        confirmation.confirmed
        and confirmation.trial != wrong.trial
        and [comparison.against for comparison in confirmation.comparisons] == ["baseline"]
    )
    assert compared == [{"threads": 64, "per_thread": 2}]
    assert (
        sink.settled[wrong.trial].gate == "correctness"
        and sink.settled[wrong.trial].outcome is Outcome.FAILED
    )


def test_a_runner_up_that_is_wrong_on_a_new_seed_is_dropped(start):
    gpu, sink = ScatteringGpu(by_threads(TWO_FAST)), ListSink()
    gpu.wrong_when = lambda program: gpu.processes == 2 and gpu.time_us(program.text) == 9.0
    start(gpu, sink)
    (confirmation,) = sink.confirmations
    assert confirmation.confirmed and [
        comparison.against for comparison in confirmation.comparisons
    ] == ["baseline"]
    assert "the runner-up, fails on new inputs" in confirmation.sentence


def test_a_fault_while_confirming_is_ours_and_the_search_still_completes(start):
    gpu, sink = ScatteringGpu(by_threads(TWO_FAST)), ListSink()

    def lost(program):
        if gpu.processes:
            raise Fault("the measuring child was lost", code="child_lost")

    gpu.on_measure = lost
    _, result = start(gpu, sink)
    (confirmation,) = sink.confirmations
    assert result.ended is Ended.COMPLETED and not confirmation.confirmed
    assert confirmation.sentence == (
        f"trial {confirmation.trial} is not confirmed, through no fault of its own: "
        "the measuring child was lost"
    )
    assert result.closing == confirmation.sentence and gpu.processes == 2  # tried again once


def test_one_lost_process_is_replaced_by_another_on_another_seed(start):
    gpu, sink = ScatteringGpu(by_threads(TWO_FAST)), ListSink()

    def lost_once(program):
        if gpu.processes == 2:
            raise Fault("the measuring child was lost", code="child_lost")

    gpu.on_measure = lost_once
    start(gpu, sink)
    assert sink.confirmations[0].confirmed and gpu.processes == 4
    assert [len(comparison.processes) for comparison in sink.confirmations[0].comparisons] == [3, 3]


@pytest.mark.parametrize(
    ("flag", "ended"), [(Control.PAUSE, Ended.PAUSED), (Control.CANCEL, Ended.CANCELLED)]
)
def test_a_search_stopped_while_its_winner_is_confirmed_confirms_when_it_is_resumed(
    flag, ended, start
):
    gpu = ScatteringGpu(by_threads(TWO_FAST))
    told = threading.Event()

    def control(sink):
        if gpu.processes:
            told.set()
        return flag if gpu.processes else Control.RUN

    gpu.on_measure = lambda program: told.wait(30.0) if gpu.processes else None
    first = ListSink(control)
    _, result = start(gpu, first, trials=8)
    assert result.ended is ended and first.confirmations == []
    second = ListSink()
    _, result = start(ScatteringGpu(by_threads(TWO_FAST)), second, first.history(), trials=8)
    assert (
        result.ended is Ended.COMPLETED and second.trials == [] and len(second.confirmations) == 1
    )


def test_without_anything_faster_than_the_baseline_there_is_nothing_to_confirm(start):
    gpu, sink = ScatteringGpu(by_threads({(128, 1): 5.0})), ListSink()
    _, result = start(gpu, sink, trials=4)
    assert sink.confirmations == [] and gpu.processes == 0
    assert result.why == "the budget is spent"
    assert result.closing == "no candidate was measured faster than the baseline"


def test_a_request_may_do_without(start):
    gpu, sink = ScatteringGpu(by_threads(TWO_FAST)), ListSink()
    _, result = start(gpu, sink, confirm=False)
    assert (
        sink.confirmations == []
        and gpu.processes == 0
        and result.why == "every valid candidate was tried"
    )


def test_peers_stand_beside_the_winner_and_their_faults_cost_nothing_else(start):
    compared = []

    def compare_peers(winner, cancelled):
        compared.append(winner.candidate.values())
        return (Peer("other", "1.0", "line", "unavailable", "not installed"),)

    def broken(winner, cancelled):
        raise Fault("the peers' child was lost", code="peers_child")

    sink = ListSink()
    start(ScatteringGpu(by_threads(TWO_FAST)), sink, more={"compare_peers": compare_peers})
    assert compared == [{"threads": 64, "per_thread": 1}] and [
        peer.name for peer in sink.peers
    ] == ["other"]
    sink = ListSink()
    _, result = start(ScatteringGpu(by_threads(TWO_FAST)), sink, more={"compare_peers": broken})
    assert sink.confirmations[0].confirmed and sink.peers == []
    assert result.closing.endswith("peers were not compared: the peers' child was lost")


def test_only_contenders_are_checked_for_safety_and_by_the_emulator(start):
    sink = ListSink()
    start(ScatteringGpu(by_threads(TWO_FAST)), sink)
    outcomes = {trial.number: gate_result(trial.verdict, "safety") for trial in sink.trials}
    fast = [trial.number for trial in sink.trials if isinstance(trial.verdict, Accepted)]
    assert fast and outcomes[0].outcome is Outcome.PASSED  # the baseline, too
    assert all(
        "checked runs on emulator:h200" in outcomes[number].sentence for number in (0, *fast)
    )
    assert {
        outcome.outcome for number, outcome in outcomes.items() if number not in (0, *fast)
    } == {Outcome.SKIPPED}


def test_what_an_accepted_candidate_beats_is_green_and_not_looked_at_for_races(start):
    gpu, sink = ScatteringGpu(by_threads(TWO_FAST)), ListSink()
    search, _ = start(gpu, sink)
    trial = next(trial for trial in sink.trials if trial.number == sink.confirmations[0].trial)
    assert search.best_time_us == contender_of(trial, is_baseline=False).time_us
    for best_us, verdict, outcome in (
        (9.0, Accepted, Outcome.PASSED),
        (7.0, Green, Outcome.SKIPPED),
    ):
        context = replace(search.context, best_time_us=lambda best_us=best_us: best_us)
        judgement = evaluate(trial.candidate, context, lambda: search.baseline).verdict
        assert (
            isinstance(judgement, verdict) and gate_result(judgement, "safety").outcome is outcome
        )
    assert (
        "an accepted candidate that takes 7.00 us was there"
        in gate_result(judgement, "safety").sentence
    )
    baseline = evaluate(sink.trials[0].candidate, context).verdict
    assert gate_result(baseline, "safety").outcome is Outcome.PASSED


def test_what_was_not_shown_to_be_faster_is_no_contender(start):
    sink = ListSink()
    start(ScatteringGpu(by_threads(TWO_FAST)), sink, confirm=False)
    accepted = next(trial for trial in sink.trials if isinstance(trial.verdict, Accepted))
    assert contender_of(accepted, is_baseline=False).time_us == pytest.approx(8.0, rel=0.15)
    assert contender_of(sink.trials[0], is_baseline=False) is None
    assert contender_of(sink.trials[0], is_baseline=True).number == 0
    slower = next(trial for trial in sink.trials[1:] if not isinstance(trial.verdict, Accepted))
    assert contender_of(slower, is_baseline=False) is None
    timings = tuple(
        replace(timing, time_kind=TimeKind.REPLAYED)
        for timing in gate_result(accepted.verdict, "performance").evidence.timings
    )
    gates = tuple(
        replace(gate, evidence=replace(gate.evidence, timings=timings))
        if gate.gate == "performance"
        else gate
        for gate in accepted.verdict.gates
    )
    assert contender_of(replace(accepted, verdict=Accepted(gates)), is_baseline=False) is None


def test_the_store_keeps_what_a_worker_confirmed(start, tmp_path):
    search, _ = start(ScatteringGpu(by_threads(TWO_FAST)), ListSink(), confirm=False)
    plan, store = (
        replace(search.plan, confirm=True),
        Store.open(f"sqlite:///{tmp_path / 'searches.sqlite3'}"),
    )
    try:
        search_id = store.submit(plan).id
        claim = store.claim("a worker", 30.0, search_id)
        sink = StoppableSink(StoreSink(store, claim, 30.0), Stop(1.0))
        kernel = search.context.kernel
        SearchRun(
            plan, replace(search.context, closing_checks=kernel.checks[1:]), sink, History()
        ).run()
        confirmation, best = store.confirmation(search_id).confirmation, store.best(search_id)
        assert confirmation.confirmed and confirmation.trial == best.number
        assert confirmation.checks == passed_checks(kernel)[1:] != (), (
            "those of the day of the confirmation"
        )
        for comparison in confirmation.comparisons:
            assert compared(comparison.processes)[1].ratios == (
                comparison.ratio_low,
                comparison.ratio,
                comparison.ratio_high,
            )
    finally:
        store.close()


# ---- what was measured on an H200 ----


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
