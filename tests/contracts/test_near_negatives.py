"""Proposals next to known negatives come later, for every strategy and without losing any."""

from __future__ import annotations

import pytest

from greenfast.search.devices.facts import device
from greenfast.search.loop.near_negatives import MOST_IN_A_ROW, NearNegatives, NearNegativesLast
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.space.space import Space
from greenfast.search.strategies import STRATEGIES
from greenfast.search.strategies.base import Objective, Past, Proposal


@pytest.fixture(scope="module")
def spaces(album):
    kernel = album.kernel("axpy")
    compiled = kernel.workload("line").compile_time(kernel)
    return {"right": Space(kernel.template("right"), compiled, device("h200"))}


def candidate(threads, per_thread, kind=OriginKind.SAMPLED):
    parameters = (("threads", threads), ("per_thread", per_thread))
    return Candidate("axpy", "right", parameters, Origin(kind))


@pytest.fixture
def known():
    """Four elements a thread never worked; one always did."""
    near = NearNegatives()
    for threads in (32, 64):
        near.add("right", candidate(threads, 4).parameters, negative=True)
        near.add("right", candidate(threads, 1).parameters, negative=False)
    return near


def drive(ask, strategy, count=100):
    points = []
    while len(points) < count and (proposal := ask()) is not None:
        points.append(proposal.candidate.parameters)
        strategy.tell(proposal, Objective(0.1 * len(points)))
    return points


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_every_strategy_still_proposes_each_point_once(name, spaces, known):
    strategy = STRATEGIES[name]("axpy", spaces, [], 3)
    ask = NearNegativesLast(strategy.ask, known.discourages)
    points = drive(ask, strategy)
    assert sorted(points) == sorted(spaces["right"].points)
    later = [known.discourages(candidate(*dict(point).values())) for point in points]
    assert True in later and later.index(True) >= MOST_IN_A_ROW, "others come first"
    assert ask() is None


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_what_was_held_back_is_proposed_again_after_a_restart(name, spaces, known):
    strategy = STRATEGIES[name]("axpy", spaces, [], 3)
    ask = NearNegativesLast(strategy.ask, known.discourages)
    recorded = []
    for _ in range(3):
        proposal = ask()
        strategy.tell(proposal, Objective(0.5))
        recorded.append(Past(proposal.candidate, proposal.sampler, Objective(0.5)))
    restored = STRATEGIES[name]("axpy", spaces, [], 3)
    restored.restore(recorded)
    rest = drive(NearNegativesLast(restored.ask, known.discourages), restored)
    points = [past.candidate.parameters for past in recorded] + rest
    assert sorted(points) == sorted(spaces["right"].points)


def test_only_more_wrong_than_correct_neighbours_discourage(known):
    assert known.discourages(candidate(128, 4)), "four elements with other threads"
    assert not known.discourages(candidate(128, 1)), "its neighbours are correct"
    assert not known.discourages(candidate(32, 2)), "as many correct as wrong"
    assert not known.discourages(candidate(32, 4)), "it is known itself, and costs nothing"
    other = Candidate("axpy", "other", candidate(128, 4).parameters, Origin(OriginKind.SAMPLED))
    assert not known.discourages(other), "another template's values mean something else"


def test_named_candidates_keep_their_place_and_nothing_starves():
    def asked(kinds):
        rows = iter([Proposal(candidate(32 * (n + 1), 4, kind)) for n, kind in enumerate(kinds)])
        ask = NearNegativesLast(lambda: next(rows, None), lambda each: True)
        order = []
        while (proposal := ask()) is not None:
            order.append(proposal.candidate.values()["threads"] // 32)
        return order

    assert asked([OriginKind.PRESET, OriginKind.SEEDED]) == [1, 2]
    many = asked([OriginKind.SAMPLED] * 200)
    assert sorted(many) == list(range(1, 201)), "more than are held at once, none lost"
    assert many[0] == 1, "with nothing else, the first comes first"
