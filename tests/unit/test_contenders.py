"""Who contends for the best of a search, who is checked, and who takes a winner's place."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confirmed_searches import SEEN, TWO_FAST, CursedGpu, ScatteringGpu, by_threads, points, starter
from test_run import ListSink

from greenfast.app.service.worker import Stop, StoppableSink
from greenfast.db.sink import StoreSink
from greenfast.db.store import Store
from greenfast.search.loop import closing
from greenfast.search.loop.confirmation import contender_of
from greenfast.search.loop.evaluate import evaluate
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import Ended, History
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import (
    Accepted,
    Failed,
    Green,
    Outcome,
    Reason,
    TimeKind,
    gate_result,
)


@pytest.fixture(scope="module")
def emulator(artifacts, catalogue):
    return open_target(
        "emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 1, run_deadline_s=20.0)
    )


@pytest.fixture
def start(album, emulator, toolchain):
    return starter(album, emulator, toolchain)


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


@pytest.mark.slow
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
    assert search.learnt.best_time_us == contender_of(trial, is_baseline=False).time_us
    for best_us, verdict, outcome in (
        (9.0, Accepted, Outcome.PASSED),
        (7.0, Green, Outcome.SKIPPED),
    ):
        context = replace(search.context, best_time_us=lambda best_us=best_us: best_us)
        judgement = evaluate(trial.candidate, context, lambda: search.learnt.baseline).verdict
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
