"""Processes that evaluate the candidates of a search on several stand-in GPUs."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest
import standin_gpus
from standin_search import axpy_search
from test_run import ListSink

from greenfast.search.loop import evaluators
from greenfast.search.loop.evaluators import end_resting, evaluators_for
from greenfast.search.loop.sink import Control, Ended
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import Faulted, performance_of

GPUS = {0: {"sleep_s": 0.02}, 1: {"sleep_s": 0.02, "speed": 1.4}}


@pytest.fixture
def target(monkeypatch, tmp_path, album):
    standin_gpus.install(monkeypatch, tmp_path / "tmp", GPUS)
    opened = open_target("cuda:all", TargetSettings(tmp_path / "cache", album.include_dirs, 1))
    end_resting()  # they belong to the folders of another test
    yield opened
    opened.close()
    end_resting()
    assert not list(Path(tempfile.gettempdir()).glob("greenfast-scratch-evaluator-*"))


@pytest.fixture
def search(target, album, toolchain):
    """`search(sink, evaluators)`: nine candidates of axpy, ready to be searched."""

    def prepared(sink, count, **request):
        ready = axpy_search(target, sink, album, toolchain, **request)
        ready.evaluator_count = count
        return ready

    return prepared


def results(sink):
    """What was judged about each candidate. Times of stand-ins do not vary."""
    return [
        (trial.candidate, type(trial.verdict), [gate.gate for gate in trial.verdict.gates])
        for trial in sink.trials
    ]


class KillingSink(ListSink):
    """Signals a process of a search once three trials are recorded."""

    def __init__(self, number, monkeypatch):
        super().__init__()
        self.search, self.number, self.monkeypatch = None, number, monkeypatch
        self.killed = []

    def record(self, records):
        super().record(records)
        if len(self.trials) >= 3 and not self.killed:
            process = self.search.running_evaluators.processes[0]
            self.killed.append(process.pid)
            self.monkeypatch.setattr(evaluators, "SILENT_BEATS", 5)  # not while they start
            os.kill(process.pid, self.number)


@pytest.mark.slow
def test_evaluators_judge_as_the_process_of_the_search_does(search):
    alone, shared = ListSink(), ListSink()
    search(alone, 0).run()
    result = search(shared, 2).run()
    assert result.ended is Ended.COMPLETED
    assert results(alone) == results(shared) and len(shared.trials) == 9
    assert [
        performance_of(trial.verdict).ratio_to_baseline for trial in alone.trials[1:]
    ] == pytest.approx(
        [performance_of(trial.verdict).ratio_to_baseline for trial in shared.trials[1:]]
    )
    gpus = {
        timing.device_index
        for trial in shared.trials
        for timing in performance_of(trial.verdict).timings
    }
    assert gpus == {0, 1}


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)]
)
def test_the_candidates_of_a_lost_evaluator_are_evaluated_by_another(search, monkeypatch, number):
    """SIGKILL ends it, and after SIGSTOP it hangs."""
    sink = KillingSink(number, monkeypatch)
    sink.search = search(sink, 2, trials=11)
    assert sink.search.run().ended is Ended.COMPLETED
    assert len(sink.killed) == 1
    assert [trial.number for trial in sink.trials] == list(range(11))
    assert not [trial for trial in sink.trials if isinstance(trial.verdict, Faulted)]


@pytest.mark.slow
def test_the_next_search_takes_the_evaluators_of_the_last(search):
    process_ids = []

    class Noting(ListSink):
        def record(self, records):
            super().record(records)
            process_ids[-1] |= {each.pid for each in ready.running_evaluators.processes}

    results = []
    for seed in (3, 4):
        process_ids.append(set())
        ready = search(Noting(), 2, trials=4, seed=seed)
        results.append(ready.run().ended)
    assert results == [Ended.COMPLETED] * 2
    assert process_ids[0] == process_ids[1] and len(process_ids[0]) == 2


def test_a_search_whose_evaluators_do_not_start_fails_and_says_why(search, monkeypatch):
    monkeypatch.setattr(evaluators, "MODULE", "greenfast.search.no_such_module")
    sink = ListSink()
    result = search(sink, 2).run()
    assert result.ended is Ended.FAILED and "No module named" in result.why
    assert all(trial.verdict.code == "evaluator_lost" for trial in sink.trials[1:])


@pytest.mark.slow
def test_a_cancelled_search_leaves_no_evaluator(search):
    class Cancelling(ListSink):
        def control(self, spent):
            return Control.CANCEL if len(self.trials) >= 2 else Control.RUN

    sink = Cancelling()
    ready = search(sink, 2)
    assert ready.run().ended is Ended.CANCELLED
    assert ready.running_evaluators is None
    assert not [each for each in threading.enumerate() if each.name.startswith("evaluator")]


@pytest.mark.parametrize(
    ("cores", "trials", "count"), [(7, None, 0), (8, None, 2), (64, 300, 2), (64, 2, 0)]
)
def test_a_long_search_on_several_gpus_has_evaluators_where_there_are_cores(
    target, monkeypatch, cores, trials, count
):
    monkeypatch.setattr(evaluators, "usable_cores", lambda: cores)
    assert evaluators_for(target, trials) == count
    assert evaluators_for(target.targets[0], trials) == 0
