"""What a search begins and records is written apart from its loop, in order, and once."""

from __future__ import annotations

import threading

import pytest
from confirmed_searches import TWO_FAST, ScatteringGpu, by_threads, starter
from test_run import ListSink

from greenfast.search.errors import Fault
from greenfast.search.loop.recorder import MOST_RECORDS, Recorder, Written
from greenfast.search.targets import TargetSettings, open_target


class SlowSink:
    """Notes each transaction; the first one waits for `released`."""

    def __init__(self, failure: Fault | None = None) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.threads: set[int] = set()
        self.entered, self.released = threading.Event(), threading.Event()
        self.failure = failure

    def begin(self, begun) -> None:
        self._note("begin", begun)

    def record(self, records) -> None:
        self._note("record", records)

    def _note(self, name, entries) -> None:
        self.threads.add(threading.get_ident())
        self.entered.set()
        assert self.released.wait(10)
        self.calls.append((name, list(entries)))
        if self.failure is not None and name == "record":
            raise self.failure


def test_the_loop_goes_on_while_a_transaction_lasts_and_those_that_begin_go_first():
    sink = SlowSink()
    with Recorder(sink, is_apart=True) as recorder:
        first = recorder.record([0])
        assert sink.entered.wait(10)
        later = [recorder.record([1, 2]), recorder.begin([3]), recorder.begin([4])]
        later.append(recorder.record([5]))
        assert not first.done() and threading.get_ident() not in sink.threads
        sink.released.set()
    assert sink.calls == [("record", [0]), ("begin", [3, 4]), ("record", [1, 2, 5])]
    assert all(future.result() is None for future in (first, *later))


def test_one_transaction_holds_a_few_trials():
    sink = SlowSink()
    with Recorder(sink, is_apart=True) as recorder:
        recorder.record([0])
        assert sink.entered.wait(10)
        for number in range(40):
            recorder.record([number])
        recorder.record(list(range(50)))
        sink.released.set()
    sizes = [len(entries) for _, entries in sink.calls]
    assert sizes == [1, MOST_RECORDS, MOST_RECORDS, 8, 50]
    assert [entry for _, entries in sink.calls[1:4] for entry in entries] == list(range(40))


def test_a_failed_transaction_is_raised_where_its_trials_are_taken():
    lost = Fault("the lease was lost", code="lease_lost")
    sink = SlowSink(lost)
    sink.released.set()
    begun, recorded = Written[int](), Written[int]()
    with Recorder(sink, is_apart=True) as recorder:
        begun.add(recorder.begin([1]), [1])
        recorded.add(recorder.record([1]), [1])
        recorded.add(recorder.record([2]), [2])
    assert list(begun.written()) == [[1]] and len(recorded) == 2
    with pytest.raises(Fault) as raised:
        list(recorded.written())
    assert raised.value is lost


def test_without_a_thread_of_its_own_each_call_is_written_when_it_returns():
    sink = SlowSink()
    sink.released.set()
    with Recorder(sink, is_apart=False) as recorder:
        assert recorder.begin([1, 2]).done() and recorder.record([1]).done()
    assert sink.calls == [("begin", [1, 2]), ("record", [1])]
    assert sink.threads == {threading.get_ident()}


class PatientSink(ListSink):
    """Its first transaction of results lasts until the loop has taken another turn."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()
        self.turns, self.went_on = 0, None

    def control(self, spent):
        with self.changed:
            self.turns += 1
            self.changed.notify()
        return super().control(spent)

    def record(self, records) -> None:
        super().record(records)
        if self.went_on is None:
            with self.changed:
                turns = self.turns
                self.went_on = self.changed.wait_for(lambda: self.turns > turns + 1, 20)


def test_the_loop_of_a_search_on_a_gpu_goes_on_during_a_transaction(
    album, artifacts, catalogue, toolchain
):
    settings = TargetSettings(artifacts, catalogue.include_dirs, 1, run_deadline_s=20.0)
    start = starter(album, open_target("emulator:h200", settings), toolchain)
    sink = PatientSink()
    start(ScatteringGpu(by_threads(TWO_FAST)), sink, trials=20, confirm=False)
    assert sink.went_on
    assert [trial.number for trial in sink.trials] == list(range(len(sink.begun)))
