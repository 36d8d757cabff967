"""Candidates with the same machine code: one of them runs, the others repeat it."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import replace

import pytest
import standin_gpus
from confirmed_searches import ScatteringGpu, by_threads
from contexts import plan_context
from standin_search import axpy_search
from test_run import ListSink
from twin_kernel import SPARES, twin_catalogue

from greenfast.search.devices.facts import device
from greenfast.search.errors import Fault
from greenfast.search.gates import safety
from greenfast.search.loop.evaluate import Evaluated
from greenfast.search.loop.evaluators import end_resting
from greenfast.search.loop.feedback import told_of
from greenfast.search.loop.memory import NoMemory
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import Ended, History
from greenfast.search.loop.twins import Twin, Twins
from greenfast.search.loop.work import Work
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import (
    Accepted,
    Failed,
    Faulted,
    Green,
    Passed,
    Reason,
    Rejected,
    Skipped,
    gate_result,
    performance_of,
)

POINTS = 11  # valid pairs of threads and elements a thread


class Notes(NoMemory):
    """Keeps what a database would."""

    def __init__(self):
        self.repeats = {}

    def used(self, number, repeats):
        assert not repeats.search_id
        self.repeats[number] = repeats.number


class CountingGpu(ScatteringGpu):
    """Notes the text of each candidate that runs, and of each that is timed."""

    def __init__(self, law):
        super().__init__(law)
        self.ran, self.timed = [], []
        self.before = lambda program: None

    def execute(self, program, problems):
        self.before(program)
        self.ran.append(program.digest)
        yield from super().execute(program, problems)

    def measure(self, program, *arguments, **named):
        if not self.processes:  # of the search itself
            self.timed.append(program.digest)
        return super().measure(program, *arguments, **named)


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    return twin_catalogue(tmp_path_factory.mktemp("twins"))


@pytest.fixture(scope="module")
def emulator(artifacts, catalogue):
    return open_target(
        "emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 1, run_deadline_s=20.0)
    )


@pytest.fixture
def search(twins, emulator, toolchain):
    """`search(gpu, sink)`: a search of all points, run to its end; its notes and its result."""

    def run(gpu, sink, history=None, window=2, catalogue=twins, **request):
        asked = {"strategy": "exhaustive", "trials": 99, "confirm": False, **request}
        plan = make_plan(
            SearchRequest("axpy", templates=("right",), **asked), catalogue, window=window
        )
        plan = replace(plan, target=gpu.name)
        context = plan_context(catalogue, plan, gpu, toolchain, checker=emulator)
        notes = Notes()
        ready = SearchRun(plan, context, sink, history or History(), memory=notes)
        result = ready.run()
        assert result.ended is Ended.COMPLETED, result.why
        return ready, notes.repeats

    return run


def works(trials):
    """The trials by what the GPU does for them."""
    found = {}
    for trial in trials:
        values = trial.candidate.values()
        found.setdefault((values["threads"], values["per_thread"]), []).append(trial)
    return found


def test_equal_machine_code_runs_once_and_the_others_repeat_its_outputs_and_times(search):
    gpu, sink = CountingGpu(by_threads({(64, 1): 8.0})), ListSink()
    ready, repeats = search(gpu, sink)
    found = works(sink.trials)
    assert len(sink.trials) == POINTS * len(SPARES) and len(found) == POINTS
    assert len(gpu.timed) == len(set(gpu.timed)) == POINTS
    assert len(set(gpu.ran)) == POINTS
    assert len(repeats) == POINTS * (len(SPARES) - 1)
    assert len({trial.source_digest for trial in sink.trials}) == len(sink.trials)
    by_number = {trial.number: trial for trial in sink.trials}
    for number, first in repeats.items():
        trial, other = by_number[number], by_number[first]
        assert trial in next(each for each in found.values() if other in each)
        assert first not in repeats
        if first != 0:
            assert performance_of(trial.verdict) == performance_of(other.verdict)
            assert told_of(trial, ready.plan) == told_of(other, ready.plan)
        for gate in ("ptxas", "correctness"):
            assert gate_result(trial.verdict, gate) == gate_result(other.verdict, gate)


def test_a_twin_of_the_fastest_is_not_checked_for_safety_and_does_not_win(search):
    sink = ListSink()
    _, repeats = search(CountingGpu(by_threads({(64, 1): 8.0})), sink)
    fastest = works(sink.trials)[64, 1]
    (first,) = (trial for trial in fastest if isinstance(trial.verdict, Accepted))
    for trial in fastest:
        if trial is not first:
            safety = gate_result(trial.verdict, "safety")
            assert isinstance(trial.verdict, Green) and isinstance(safety, Skipped)
            assert f"trial {first.number}, which runs the same machine code" in safety.sentence
            assert repeats[trial.number] == first.number


def test_a_twin_of_the_baseline_is_as_fast_as_the_baseline(search):
    sink = ListSink()
    ready, repeats = search(CountingGpu(by_threads({})), sink)
    others = [trial for trial in works(sink.trials)[128, 1] if trial.number]
    assert len(others) == len(SPARES) - 1
    for trial in others:
        assert isinstance(trial.verdict, Rejected) and trial.verdict.reason is Reason.SAME
        assert "it runs the same machine code" in trial.verdict.sentence
        assert told_of(trial, ready.plan).log_ratio == 0.0 and repeats[trial.number] == 0


class FirstOf:
    """Does something to the first text of some work that runs, and to no other."""

    def __init__(self, fate, threads=64, per_thread=1):
        self.words = f"constexpr int threads = {threads};", f"int per_thread = {per_thread};"
        self.first, self.fate, self.lock = None, fate, threading.Lock()

    def __call__(self, program):
        if all(word in program.text for word in self.words):
            with self.lock:
                self.first = self.first or program.digest
            if program.digest == self.first:
                self.fate()


def lost():
    raise Fault("the measuring child was lost", code="child_lost")


def test_the_twin_of_a_faulted_trial_runs_and_is_repeated_itself(search):
    gpu, sink = CountingGpu(by_threads({})), ListSink()
    gpu.before = FirstOf(lost)
    _, repeats = search(gpu, sink)
    faulted, *others = sorted(
        works(sink.trials)[64, 1], key=lambda trial: not isinstance(trial.verdict, Faulted)
    )
    assert isinstance(faulted.verdict, Faulted) and faulted.source_digest == gpu.before.first
    assert not any(isinstance(trial.verdict, Faulted) for trial in others)
    assert len([digest for digest in gpu.timed if digest in sources(others)]) == 1
    assert [repeats.get(trial.number) for trial in others].count(None) == 1
    assert faulted.number not in repeats.values()


def sources(trials):
    return {trial.source_digest for trial in trials}


def test_a_verdict_that_may_be_the_machines_is_not_repeated(search):
    """Alternating fast and slow blocks: too noisy to judge."""
    gpu, sink = CountingGpu(by_threads({(64, 1): 9.9})), ListSink()
    gpu.noise = 0.2
    _, repeats = search(gpu, sink)
    unclear = {
        trial.number
        for trial in sink.trials
        if getattr(trial.verdict, "reason", None) in (Reason.AMBIGUOUS, Reason.TOO_NOISY)
    }
    assert unclear and not unclear & {*repeats, *repeats.values()}


def test_wrong_outputs_are_repeated_too(search):
    gpu, sink = CountingGpu(by_threads({})), ListSink()
    gpu.wrong_when = lambda program: "constexpr int threads = 64;" in program.text
    _, repeats = search(gpu, sink)
    wrong = [trial for trial in sink.trials if trial.candidate.values()["threads"] == 64]
    assert {trial.verdict.reason for trial in wrong} == {Reason.WRONG_VALUES}
    ran = [trial for trial in wrong if trial.source_digest in gpu.ran]
    assert len(ran) == len(wrong) / len(SPARES)
    assert {trial.number for trial in wrong} - set(repeats) == {trial.number for trial in ran}


def test_a_resumed_search_repeats_what_it_ran_before(search):
    gpu, sink = CountingGpu(by_threads({(64, 1): 8.0})), ListSink()
    search(gpu, sink, trials=12)
    assert 0 < len(sink.trials) < POINTS * len(SPARES)
    before = len(sink.trials)
    _, repeats = search(gpu, sink, history=sink.history())
    assert len(sink.trials) == POINTS * len(SPARES)
    assert len(gpu.timed) == len(set(gpu.timed)) == POINTS
    assert any(first < before for first in repeats.values())


def test_a_stored_verdict_is_repeated_with_its_checks(search):
    """A resumed search has verdicts without single checks, and reads them when it needs them."""
    gpu, sink = CountingGpu(by_threads({})), ListSink()
    search(gpu, sink, trials=POINTS)
    whole = {trial.number: trial.verdict for trial in sink.trials}
    asked = []

    def verdict_of(number):
        asked.append(number)
        return whole.get(number)

    history = replace(sink.history(), verdict_of=verdict_of)
    _, repeats = search(gpu, sink, history=history)
    assert set(asked) >= {first for first in repeats.values() if first in whole}
    for trial in sink.trials:
        evidence = gate_result(trial.verdict, "correctness").evidence
        assert evidence.checks, trial.number


WORK = Work("code", "launches")
RIGHT = Green((Passed("correctness", "right"), Passed("performance", "fast")))


def held(twins):
    return Twins(twins.kernel("axpy"), (), device("h200"))


def asked(registry, number, is_baseline=False):
    """A trial that asks: its own future, what it hears, and the answer that it waits for."""
    own, timed, heard = Future(), Future(), []
    answer = registry.find(number, heard.append, is_baseline, WORK)
    registry.follow(number, own, timed)
    return own, timed, heard, answer


def test_a_twin_in_flight_is_waited_for_and_its_time_is_heard_before_its_safety_check(twins):
    registry = held(twins)
    own, timed, _, answer = asked(registry, 7)
    assert answer.result(0) is None
    _, _, heard, waiting = asked(registry, 5)
    assert not waiting.done() and not heard
    timed.set_result(RIGHT)
    assert heard == [RIGHT] and not waiting.done()
    _, _, late, another = asked(registry, 8)
    assert late == [RIGHT]
    own.set_result(Evaluated(RIGHT, None, 0.0))
    assert waiting.result(0) == another.result(0) == Twin(7, RIGHT)
    assert asked(registry, 9)[3].result(0) == Twin(7, RIGHT)


@pytest.mark.parametrize("end", ["fault", "error", "machine"])
def test_where_nothing_is_known_the_next_one_runs_and_the_others_wait_for_it(twins, end):
    registry = held(twins)
    own, _, _, _ = asked(registry, 0)
    second, _, _, answer = asked(registry, 1)
    _, _, _, last = asked(registry, 2)
    timeout = Rejected("correctness", Reason.TIMEOUT, "", (Passed("ptxas", ""),))
    fault = Faulted("correctness", "gpu_lost", "")
    if end == "error":
        own.set_exception(RuntimeError("a bug"))
    else:
        own.set_result(Evaluated(fault if end == "fault" else timeout, None, 0.0))
    assert answer.result(0) is None and not last.done()
    assert asked(registry, 1)[3].result(0) is None  # evaluated again, after a fault of its own
    second.set_result(Evaluated(RIGHT, None, 0.0))
    assert last.result(0) == Twin(1, RIGHT)


def test_a_trial_that_is_stored_while_a_twin_asks_is_repeated(twins):
    """The store may not know it yet, and it is dropped here as soon as the store does."""
    store = {}

    def stored_verdict(number):
        verdict = store.get(number)  # what the database shows by then
        store[number] = RIGHT
        registry.stored(number)
        return verdict

    registry = Twins(twins.kernel("axpy"), (), device("h200"), stored_verdict)
    own, _, _, _ = asked(registry, 7)
    own.set_result(Evaluated(RIGHT, None, 0.0))
    for number in (8, 9):
        assert asked(registry, number)[3].result(0) == Twin(7, RIGHT)


def test_the_baseline_runs_even_when_another_trial_was_first(twins):
    registry = held(twins)
    own, _, _, _ = asked(registry, 3)
    _, _, _, waiting = asked(registry, 4)
    baseline, timed, _, answer = asked(registry, 0, is_baseline=True)
    assert answer.result(0) is None
    _, _, heard, later = asked(registry, 5)
    timed.set_result(RIGHT)
    assert not heard  # its time is compared with nothing
    baseline.set_result(Evaluated(RIGHT, None, 0.0))
    own.set_result(Evaluated(RIGHT, None, 0.0))
    assert (waiting.result(0).number, later.result(0).number) == (3, 0)


def test_evaluators_ask_the_process_of_the_search(monkeypatch, tmp_path, twins, toolchain):
    """A stand-in GPU's times follow from the bytes of a cubin, in which twins differ."""
    standin_gpus.install(monkeypatch, tmp_path / "tmp", {0: {}, 1: {"speed": 1.4}})
    target = open_target("cuda:all", TargetSettings(tmp_path / "cache", twins.include_dirs, 1))
    end_resting()  # they belong to the folders of another test
    sink = ListSink()
    try:
        ready = axpy_search(
            target, sink, twins, toolchain, window=4, strategy="exhaustive", trials=99
        )
        ready.memory, ready.evaluator_count = Notes(), 2
        assert ready.run().ended is Ended.COMPLETED
    finally:
        target.close()
        end_resting()
    assert not [trial for trial in sink.trials if isinstance(trial.verdict, Faulted)]
    repeats = ready.memory.repeats
    assert len(repeats) == POINTS * (len(SPARES) - 1)
    by_number = {trial.number: trial for trial in sink.trials}
    for number, first in repeats.items():
        if first != 0:
            assert performance_of(by_number[number].verdict) == performance_of(
                by_number[first].verdict
            )


@pytest.mark.slow
def test_launches_that_differ_are_other_work(tmp_path, search):
    """One text and so one machine code for all numbers of threads, which it reads from blockDim."""
    catalogue = twin_catalogue(tmp_path, "")
    text = tmp_path / "axpy" / "right.cu.j2"
    text.write_text(
        text.read_text()
        .replace("constexpr int threads = {{ threads }};\n", "// {{ threads }} {{ spare }}\n")
        .replace(" __launch_bounds__(threads)", "")
        .replace("* threads + threadIdx.x", "* blockDim.x + threadIdx.x")
    )
    gpu, sink = CountingGpu(lambda text: 10.0), ListSink()
    search(gpu, sink, catalogue=catalogue)
    assert len(gpu.timed) == POINTS
    codes = {gate_result(trial.verdict, "ptxas").evidence.machine_code for trial in sink.trials}
    assert len(codes) == 3  # one for each number of elements a thread


def test_an_unsafe_twin_says_nothing_about_another_text(twins, search, monkeypatch):
    judge, judged = safety.SafetyGate.judge, []

    def finds_a_race_in_the_first(gate, subject, baseline=None):
        values = subject.candidate.values()
        if (values["threads"], values["per_thread"]) != (64, 1):
            return judge(gate, subject, baseline)
        judged.append(subject.source.digest)
        if len(judged) == 1:
            return Failed("safety", "a race", Reason.RACE)
        return judge(gate, subject, baseline)

    monkeypatch.setattr(safety.SafetyGate, "judge", finds_a_race_in_the_first)
    gpu, sink = CountingGpu(by_threads({(64, 1): 8.0})), ListSink()
    search(gpu, sink)
    fastest = works(sink.trials)[64, 1]
    assert len(judged) >= 2 and len(set(judged)) == len(judged)
    kinds = [type(trial.verdict) for trial in fastest]
    assert kinds.count(Rejected) == 1 and Accepted in kinds
    assert len([digest for digest in gpu.timed if digest in sources(fastest)]) == 1


def test_the_emulator_judges_every_text(twins, emulator, toolchain):
    plan = make_plan(
        SearchRequest("axpy", templates=("right",), strategy="exhaustive", trials=3), twins
    )
    sink, notes = ListSink(), Notes()
    context = plan_context(twins, plan, emulator, toolchain)
    SearchRun(plan, context, sink, History(), memory=notes).run()
    codes = [gate_result(trial.verdict, "ptxas").evidence.machine_code for trial in sink.trials]
    assert len(set(codes)) < len(codes) == 3 and not notes.repeats
    assert all(performance_of(trial.verdict) for trial in sink.trials)
