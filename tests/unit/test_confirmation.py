"""How a search ends: its winner is confirmed in fresh processes, or is not, and why."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from confirmed_searches import TWO_FAST, ScatteringGpu, by_threads, starter
from test_run import ListSink

from greenfast.app.service.worker import Stop, StoppableSink
from greenfast.db.sink import StoreSink
from greenfast.db.store import Store
from greenfast.search.digest import canonical
from greenfast.search.errors import Fault
from greenfast.search.kernels.identity import passed_checks
from greenfast.search.loop.comparison import Peer
from greenfast.search.loop.confirmation import compared
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import Control, Ended, History
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.timing import LOOKS
from greenfast.search.verdict import Accepted, Outcome


@pytest.fixture(scope="module")
def emulator(artifacts, catalogue):
    return open_target(
        "emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 1, run_deadline_s=20.0)
    )


@pytest.fixture
def start(album, emulator, toolchain):
    return starter(album, emulator, toolchain)


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


@pytest.mark.slow
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
