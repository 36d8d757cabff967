"""A safety check that lasts holds up neither other trials nor what the strategy hears."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest
import standin_gpus
from standin_search import axpy_search
from test_run import ListSink

from greenfast.search.devices.facts import device
from greenfast.search.loop.evaluate import Evaluated
from greenfast.search.loop.flights import BEHIND, Flight, Flights, set_once
from greenfast.search.loop.proposer import Proposer
from greenfast.search.loop.sink import Ended
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import Checked, Runner
from greenfast.search.verdict import Accepted, Green, Rejected, SafetyFinding

WINDOW, TRIALS = 2, 9
ENOUGH = 7  # outcomes that the strategy hears of while a check lasts: more than the window holds
LONGEST_S = 60.0


class SlowChecker(Runner):
    """Its checks last until the strategy has heard enough, and find what they are told to."""

    name, device, measures, band, check_flop_limit = "checker", device("h200"), False, 1.0, 0.0

    def __init__(self, finding=None):
        self.enough, self.begun, self.starved, self.finding = threading.Event(), 0, False, finding

    def prepare(self):
        pass

    def identity(self):
        return (("target", self.name),)

    def load(self, source, cubin):
        return source

    def execute(self, program, problems):
        raise NotImplementedError

    def measure(self, program, cubin, problems, against=None, inspect=None):
        raise NotImplementedError

    def check(self, program, problems):
        self.begun += 1
        self.starved |= not self.enough.wait(LONGEST_S)
        findings = (self.finding,) if self.finding else ()
        yield Checked(problems[0], "forward", findings)


@pytest.fixture
def searched(monkeypatch, tmp_path, album, toolchain):
    """`searched(checker)`: the ended search on a stand-in GPU, and its sink."""

    def run(checker, strategy="random"):
        standin_gpus.install(monkeypatch, tmp_path / "tmp", {0: {}})
        target = open_target("cuda:0", TargetSettings(tmp_path / "cache", album.include_dirs, 1))
        # What is told last is dropped at a search's end; here it is looked at.
        end = lambda proposer, *error: proposer._thread.shutdown(wait=True)  # noqa: E731
        monkeypatch.setattr(Proposer, "__exit__", end)
        sink = ListSink()
        search = axpy_search(
            target,
            sink,
            album,
            toolchain,
            window=WINDOW,
            checker=checker,
            trials=TRIALS,
            strategy=strategy,
        )
        tell, heard = search.strategy.tell, []

        def counted(proposal, told):
            tell(proposal, told)
            heard.append(proposal.candidate.digest)
            if len(heard) >= ENOUGH:
                checker.enough.set()

        monkeypatch.setattr(search.strategy, "tell", counted)
        try:
            assert search.run().ended is Ended.COMPLETED
        finally:
            target.close()
        return search, sink, heard

    return run


def test_trials_go_on_while_a_fast_candidate_is_checked(searched):
    checker = SlowChecker()
    _, sink, heard = searched(checker)
    assert not checker.starved and checker.begun
    assert [trial.number for trial in sink.trials] == list(range(TRIALS))
    assert heard == [trial.candidate.digest for trial in sink.trials]
    assert any(isinstance(trial.verdict, Accepted) for trial in sink.trials[1:])


def test_a_strategy_that_heard_of_a_fast_time_hears_that_it_was_unsafe(searched, monkeypatch):
    checker = SlowChecker(SafetyFinding("race", "a race"))
    search, sink, _ = searched(checker, "evolution")
    unsafe = [
        trial
        for trial in sink.trials
        if isinstance(trial.verdict, Rejected) and trial.verdict.stage == "safety"
    ]
    assert unsafe and not checker.starved
    island = search.strategy._islands["right"]
    logs = dict(zip((each.digest for each in island.tried), island.logs, strict=True))
    assert len(island.tried) == len(logs)  # no candidate is learnt twice
    assert all(logs[trial.candidate.digest] != logs[trial.candidate.digest] for trial in unsafe)


@pytest.mark.parametrize(("is_measured", "room"), [(True, True), (False, False)])
def test_a_trial_whose_time_is_known_makes_room_where_times_are_measured(is_measured, room):
    flights = Flights(1, is_measured=is_measured)
    assert flights.has_room(0) and not flights.has_room(1)
    flight = Flight(0, None, None, Future())
    flights.add(flight)
    assert not flights.has_room(0) and not list(flights.news())
    hear = set_once(flight.timed)
    hear(Green(()))
    hear(Green(()))  # an evaluation that is repeated after a fault
    assert flights.has_room(0) is room
    assert list(flights.news()) == ([flight] if is_measured else [])
    assert flights.done() == []  # the check is still to come
    flight.future.set_result(Evaluated(Green(()), None, 0.0))
    assert flights.done() == [flight] and not flights


@pytest.mark.parametrize("is_measured", [True, False])
def test_trials_that_have_ended_are_taken_together_only_where_times_are_measured(is_measured):
    flights = Flights(8, is_measured=is_measured)
    for number in range(3):
        flights.add(Flight(number, None, None, Future()))
    queued = list(flights._queue)
    for flight in (queued[0], queued[1]):
        flight.future.set_result(Evaluated(Green(()), None, 0.0))
    assert flights.done() == (queued[:2] if is_measured else queued[:1])
    assert flights.done() == ([] if is_measured else queued[1:2])
    assert flights.done() == []


def test_a_trial_begins_only_if_those_under_way_leave_it_time():
    flights = Flights(16, is_measured=True)
    assert flights.in_time(0, 5.0, 0.1)  # no rate is known yet
    for number in range(10):
        flights.add(Flight(number, None, None, Future()))
    for flight in flights._queue:
        if flight.number < 2:
            set_once(flight.timed)(Green(()))
    assert flights.has_room(0)
    # Two in 4 s: eight and one more take 18 s, and another that was asked for 2 s.
    assert flights.in_time(0, 4.0, 18.0) and not flights.in_time(0, 4.0, 17.9)
    assert flights.in_time(1, 4.0, 20.0) and not flights.in_time(1, 4.0, 19.9)
    others = Flights(16, is_measured=False)  # the same plan makes the same choices there
    others.add(Flight(0, None, None, Future()))
    assert others.in_time(0, 100.0, 0.1)


def test_trials_that_wait_to_be_recorded_are_limited(searched):
    flights = Flights(2, is_measured=True)
    for number in range(2 * BEHIND):
        assert flights.has_room(0)
        flights.add(Flight(number, None, None, Future()))
        set_once(flights._queue[-1].timed)(Green(()))
    assert not flights.has_room(0)
