"""The strategy's own thread: the loop does not wait for it, and choices do not depend on time."""

from __future__ import annotations

import threading
import time
from collections import deque

import pytest
from contexts import plan_context
from test_run import ListSink

from greenfast.search.errors import Fault
from greenfast.search.loop import proposer
from greenfast.search.loop.feedback import told_of
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.proposer import MANY_WAITING, Proposer
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import Ended, History
from greenfast.search.loop.start import make_strategy
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.strategies.base import Infeasible, Objective, Proposal
from greenfast.search.targets import TargetSettings, open_target

RECORDING = "mission-mma-h200"
WINDOW, TRIALS = 4, 14


@pytest.fixture(scope="module")
def recording(catalogue, artifacts):
    return open_target(f"replay:{RECORDING}", TargetSettings(artifacts, catalogue.include_dirs, 1))


@pytest.fixture
def prepared(catalogue, recording):
    """`prepared(sink)`: a search on a recording, ready to run."""

    def search(sink, strategy="tpe"):
        request = SearchRequest(
            "attention", target=f"replay:{RECORDING}", strategy=strategy, trials=TRIALS, seed=11
        )
        plan = make_plan(request, catalogue, window=WINDOW)
        context = plan_context(catalogue, plan, recording, None)  # it compiles nothing
        return SearchRun(plan, context, sink, History())

    return search


def digests(sink):
    return [trial.candidate.digest for trial in sink.trials]


@pytest.mark.parametrize("may_move", [True, False])
def test_a_strategy_is_in_haste_only_while_many_questions_wait_where_times_are_measured(
    monkeypatch, may_move
):
    monkeypatch.setattr(proposer, "apart", lambda strategy: None)
    is_asked, hastes = threading.Event(), []

    class Noting:
        in_haste = False

        def ask(self):
            is_asked.wait(10.0)
            hastes.append(self.in_haste)

    count = MANY_WAITING + 3
    with Proposer(Noting(), None, None, may_move=may_move) as asking:
        answers = [asking.ask() for _ in range(count)]
        is_asked.set()
        assert [answer.result() for answer in answers] == [None] * count
    assert hastes[-MANY_WAITING:] == [False] * MANY_WAITING
    assert any(hastes) is may_move


def test_trials_are_recorded_while_the_strategy_thinks(prepared):
    """A loop that waits for the strategy would never record the first trial here."""
    sink = ListSink()
    search = prepared(sink)
    ask, asked = search.strategy.ask, []

    def patient_ask():
        asked.append(len(asked))
        if len(asked) == 3:  # the window has room for this one from the beginning
            end = time.monotonic() + 60.0
            while not sink.trials and time.monotonic() < end:
                time.sleep(0.01)
            asked.append("recorded" if sink.trials else "waited in vain")
        return ask()

    search.strategy.ask = patient_ask
    assert search.run().ended is Ended.COMPLETED
    assert "recorded" in asked and len(sink.trials) == TRIALS


def test_choices_are_those_of_a_strategy_that_is_asked_in_turn(prepared):
    """Trial n is chosen when the outcomes of the trials up to n - window are known, and no other,
    whether answers come at once or late."""
    hurried, late = ListSink(), ListSink()
    prepared(hurried).run()
    search = prepared(late)
    ask, count = search.strategy.ask, [0]

    def late_ask():
        count[0] += 1
        time.sleep(0.05 * (count[0] % 3))
        return ask()

    search.strategy.ask = late_ask
    search.run()
    by_hand = make_strategy(search.plan, search.context)
    outcomes = {trial.candidate.digest: trial for trial in late.trials}
    order = [late.trials[0].candidate.digest]
    for number in range(1, TRIALS):
        if number >= WINDOW:
            trial = outcomes[order[number - WINDOW]]
            by_hand.tell(Proposal(trial.candidate, trial.sampler), told_of(trial, search.plan))
        digest = by_hand.ask().candidate.digest
        if digest == order[0] and number < WINDOW:  # the baseline again, not yet evaluated
            digest = by_hand.ask().candidate.digest
        order.append(digest)
    assert digests(hurried) == digests(late) == order


class Listed:
    """A strategy that proposes a list and notes what it is told."""

    def __init__(self, values):
        self.values, self.told = deque(values), []

    def ask(self):
        return Proposal(candidate(self.values.popleft())) if self.values else None

    def tell(self, proposal, told):
        self.told.append((dict(proposal.candidate.parameters)["a"], told))


def candidate(value):
    return Candidate("k", "t", (("a", value),), Origin(OriginKind.SAMPLED))


def rendered(of):
    """Values a and a + 10 have the same text."""
    text = f"text {dict(of.parameters)['a'] % 10}"
    return RenderedSource(text, text, (), text, ("k",), False)


def launch_alike(of):
    return "t", ()


def test_a_text_that_was_tried_is_no_new_trial_and_its_outcome_is_told():
    strategy = Listed([1, 11, 2, 12])
    with Proposer(strategy, rendered, launch_alike) as proposer:
        first = proposer.ask().result()
        proposer.tell(first.proposal, first.rendered.digest, Objective(-0.5))
        second = proposer.ask().result()
        proposer.tell(second.proposal, second.rendered.digest, None)  # a fault
        assert proposer.ask().result() is None
    values = [dict(each.proposal.candidate.parameters)["a"] for each in (first, second)]
    assert values == [1, 2]
    assert strategy.told == [(1, Objective(-0.5)), (11, Objective(-0.5))]


def test_a_text_that_was_tried_with_another_launch_is_a_new_trial():
    """A kernel that reads `blockDim` has one text for all its blocks."""
    strategy = Listed([1, 11, 1])
    with Proposer(strategy, rendered, lambda of: ("t", of.parameters)) as proposer:
        first, second = proposer.ask().result(), proposer.ask().result()
        assert first.rendered.digest == second.rendered.digest
        proposer.tell(first.proposal, first.rendered.digest, Objective(-0.5))
        proposer.tell(second.proposal, second.rendered.digest, Infeasible())
        assert proposer.ask().result() is None
    assert strategy.told == [(1, Objective(-0.5)), (11, Infeasible()), (1, Objective(-0.5))]


def test_a_stored_trials_text_is_known():
    strategy = Listed([1, 3])
    proposer = Proposer(strategy, rendered, launch_alike)
    proposer.remember(candidate(1), "text 1", Infeasible())
    with proposer:
        assert proposer.ask().result().rendered.digest == "text 3"
    assert strategy.told == [(1, Infeasible())]


def test_a_proposal_whose_rendering_was_lost_has_no_text_yet():
    def lost(of):
        raise Fault("the child was lost", code="child_lost")

    with Proposer(Listed([1]), lost, launch_alike) as proposer:
        assert proposer.ask().result().rendered is None


def test_an_error_of_the_strategy_reaches_the_loop_from_asking_and_from_telling():
    strategy = Listed([1, 2])
    strategy.tell = lambda proposal, told: 1 / 0
    with Proposer(strategy, rendered, launch_alike) as proposer:
        first = proposer.ask().result()
        proposer.tell(first.proposal, first.rendered.digest, Infeasible())
        with pytest.raises(ZeroDivisionError):
            proposer.ask().result()


def test_leaving_does_not_wait_for_questions_that_were_not_begun():
    begun, leave = threading.Event(), threading.Event()
    strategy = Listed([])

    def slow():
        begun.set()
        assert leave.wait(60.0)

    strategy.ask = slow
    with Proposer(strategy, rendered, launch_alike) as proposer:
        first, second = proposer.ask(), proposer.ask()
        assert begun.wait(60.0)
        leave.set()
        first.result()
    assert second.done()
