"""A strategy in a process of its own proposes what it would propose here, also after its death."""

from __future__ import annotations

import math

import pytest

from greenfast.search.devices.facts import device
from greenfast.search.space.space import Space
from greenfast.search.strategies import STRATEGIES, apart
from greenfast.search.strategies.apart import Apart
from greenfast.search.strategies.base import Infeasible, Objective, Proposal

COUNT, BEHIND = 24, 3  # proposals, and how many of them are under way


@pytest.fixture
def strategy(catalogue):
    kernel = catalogue.kernel("rmsnorm")
    compiled = kernel.workload(kernel.workloads[0].name).compile_time(kernel)
    spaces = {
        template.name: Space(template, compiled, device("h200")) for template in kernel.templates
    }
    return lambda: STRATEGIES["evolution"]("rmsnorm", spaces, [], 5)


@pytest.fixture
def moved(strategy):
    """An `Apart` whose process has started."""
    chooser = Apart(strategy())
    chooser._starting.result()
    yield chooser
    chooser.close()


def told(candidate):
    length = sum(len(str(value)) for _, value in candidate.parameters)
    return Infeasible() if length % 7 == 0 else Objective(math.log(length))


def driven(chooser, count, at=lambda number: None):
    proposals = []
    for number in range(count):
        at(number)
        proposals.append(chooser.ask())
        if number >= BEHIND:
            first = proposals[number - BEHIND]
            chooser.tell(first, told(first.candidate))
    return proposals


def test_it_proposes_what_it_would_propose_here(strategy, moved):
    here = driven(strategy(), COUNT)
    assert driven(moved, COUNT) == here
    assert moved._child is not None, "the process answered"


def test_in_haste_a_ranking_gives_two_proposals_and_none_twice(strategy, moved):
    usual, ranked = strategy(), []
    usual.in_haste = True
    rank = usual._ranked
    usual._ranked = lambda *given: (ranked.append(given), rank(*given))[1]
    here = driven(usual, 2 * COUNT)
    points = [proposal.candidate.digest for proposal in here]
    assert len(set(points)) == len(points) == 2 * COUNT
    assert len(ranked) < COUNT, "every ranking gave one proposal"
    moved.in_haste = True
    assert driven(moved, 2 * COUNT) == here


def test_questions_before_the_process_has_started_are_answered_here(strategy, monkeypatch):
    here = driven(strategy(), COUNT)
    chooser = Apart(strategy())
    starting, chooser._starting = chooser._starting, None
    starting.result()

    def at(number):
        if number == COUNT // 2:
            chooser._starting = starting

    try:
        assert driven(chooser, COUNT, at) == here
        assert chooser._child is not None
    finally:
        chooser.close()


def test_after_the_death_of_its_process_the_search_goes_on_with_nothing_twice(moved):
    baseline = moved._strategy.ask()  # asked and under way when the process starts

    def at(number):
        if number == COUNT // 2:
            moved.tell(baseline, told(baseline.candidate))
            moved.correct(Proposal(baseline.candidate), Infeasible())
            moved._child.kill()

    digests = {proposal.candidate.digest for proposal in driven(moved, COUNT, at)}
    assert moved._child is None
    assert len(digests | {baseline.candidate.digest}) == COUNT + 1
    known = {candidate for island in moved._strategy._known.values() for candidate in island}
    assert len(known) >= (COUNT - BEHIND) // 2  # what was told before the death is known, too


def test_a_strategy_that_cannot_be_copied_stays_here(strategy):
    own = strategy()
    own.note = lambda: None
    chooser = Apart(own)
    try:
        chooser._starting.result()
        assert chooser.ask() is not None
        assert chooser._child is None and chooser._starting is None
    finally:
        chooser.close()


def test_an_outcome_that_was_heard_here_and_corrected_there_is_learnt_once(strategy):
    own = strategy()
    chooser = Apart(own)
    starting, chooser._starting = chooser._starting, None
    starting.result()
    try:
        first = chooser.ask()
        chooser.tell(first, told(first.candidate))
        chooser._starting = starting
        second = chooser.ask()
        chooser.correct(first, Infeasible())
        chooser._child.kill()
        chooser.tell(second, told(second.candidate))
        island = own._islands[first.candidate.template]
        tried = [candidate.digest for candidate in island.tried]
        assert tried.count(first.candidate.digest) == 1
        assert math.isnan(island.logs[tried.index(first.candidate.digest)])
    finally:
        chooser.close()


def test_a_search_that_ends_at_once_leaves_no_process(strategy):
    chooser = Apart(strategy())
    chooser.close()
    assert chooser._child is None
    assert chooser._booting is None or not chooser._booting.alive


@pytest.mark.parametrize(("cores", "moves"), [(2, False), (16, True)])
def test_it_moves_where_there_is_a_core_for_it(strategy, monkeypatch, cores, moves):
    monkeypatch.setattr(apart, "usable_cores", lambda: cores)
    monkeypatch.setattr(Apart, "_started", lambda self: None)
    assert (apart.apart(strategy()) is not None) is moves
