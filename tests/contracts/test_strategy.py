"""What every strategy must do, run over the registry: a newcomer is tested on arrival."""

from __future__ import annotations

import json
import math
from functools import cache

import pytest
from slow_cases import quick_first

from greenfast.db.convert import candidate_json, candidate_of
from greenfast.search.devices.facts import device
from greenfast.search.space.candidate import OriginKind, preset_candidate
from greenfast.search.space.space import Space
from greenfast.search.strategies import STRATEGIES
from greenfast.search.strategies.base import Infeasible, Objective, Past, Proposal
from greenfast.search.strategies.nsga2 import POPULATION, OrderedParents

DRIVEN_SEED = 11
DRIVEN = 70  # proposals, more than the first generation of nsga2


@pytest.fixture(scope="module")
def small_spaces(album):
    kernel = album.kernel("axpy")
    compiled = kernel.workload("line").compile_time(kernel)
    return {"right": Space(kernel.template("right"), compiled, device("h200"))}


@pytest.fixture(scope="module")
def large_spaces(catalogue):
    kernel = catalogue.kernel("attention")
    compiled = kernel.workload("mission").compile_time(kernel)
    return {
        template.name: Space(template, compiled, device("h200")) for template in kernel.templates
    }


@pytest.fixture(scope="module")
def driven(large_spaces):
    """Strategy -> its first `DRIVEN` proposals with `DRIVEN_SEED`, which several tests read."""

    @cache
    def proposals(strategy_type):
        return tuple(_drive(strategy_type("attention", large_spaces, [], DRIVEN_SEED), DRIVEN))

    return proposals


@pytest.fixture(params=sorted(STRATEGIES))
def strategy_type(request):
    return STRATEGIES[request.param]


def _told(candidate):
    """A landscape with a wrong half (K transposed) and one valley."""
    position = sum(index + 1 for index, (_, value) in enumerate(candidate.parameters) if value)
    wrong = candidate.values().get("k_layout") == "transposed"
    return Infeasible() if wrong else Objective(math.log(1 + abs(position - 7)))


def _drive(strategy, count):
    proposals = []
    for _ in range(count):
        proposal = strategy.ask()
        if proposal is None:
            break
        proposals.append(proposal)
        strategy.tell(proposal, _told(proposal.candidate))
    return proposals


def test_the_registry_is_not_empty():
    named = {"cmaes", "evolution", "exhaustive", "gp", "nsga2", "portfolio", "random", "tpe"}
    assert named <= set(STRATEGIES)


def test_a_small_space_is_exhausted_without_repetition(strategy_type, small_spaces):
    proposals = _drive(strategy_type("axpy", small_spaces, [], 3), 100)
    points = [proposal.candidate.parameters for proposal in proposals]
    assert sorted(points) == sorted(small_spaces["right"].points)


def test_proposals_are_valid_new_and_from_all_templates(strategy_type, large_spaces, driven):
    proposals = driven(strategy_type)
    assert len({proposal.candidate.digest for proposal in proposals}) == DRIVEN
    assert all(
        large_spaces[proposal.candidate.template].why_not(proposal.candidate.parameters) is None
        for proposal in proposals
    )
    assert {proposal.candidate.template for proposal in proposals} == set(large_spaces)


def test_the_same_seed_makes_the_same_choices_and_another_seed_others(
    strategy_type, large_spaces, driven
):
    runs = [
        [proposal.candidate.digest for proposal in proposals]
        for proposals in (
            driven(strategy_type)[:40],
            _drive(strategy_type("attention", large_spaces, [], DRIVEN_SEED), 40),
            _drive(strategy_type("attention", large_spaces, [], 6), 40),
        )
    ]
    assert runs[0] == runs[1]
    assert (runs[1] != runs[2]) == (strategy_type is not STRATEGIES["exhaustive"])


def test_a_cold_start_has_no_presets(strategy_type, driven):
    """Its first point is the strategy's own, also where a preset would be a valid point."""
    kinds = {proposal.candidate.origin.kind for proposal in driven(strategy_type)}
    assert OriginKind.PRESET not in kinds


def test_a_warm_start_tries_its_seeds_first_and_once(strategy_type, large_spaces):
    space = large_spaces["wmma"]
    seeds = [
        preset_candidate(space.template, name, space.compiled)
        for name in ("flashcore_a", "flashcore_a64")
    ]
    proposals = _drive(strategy_type("attention", large_spaces, seeds, 1), 60)
    digests = [proposal.candidate.digest for proposal in proposals]
    assert digests[:2] == [seed.digest for seed in seeds]
    assert len(set(digests)) == len(digests)


def test_a_restored_strategy_repeats_nothing_and_is_the_same_each_time(
    strategy_type, large_spaces, driven
):
    first = driven(strategy_type)[:50]
    past = [
        Past(proposal.candidate, proposal.sampler, _told(proposal.candidate))
        for proposal in first[:48]
    ]
    past += [
        Past(proposal.candidate, proposal.sampler, None) for proposal in first[48:]
    ]  # faults are known, not told
    restored = []
    for _ in range(2):
        strategy = strategy_type("attention", large_spaces, [], DRIVEN_SEED)
        strategy.restore(past)
        restored.append([proposal.candidate.digest for proposal in _drive(strategy, 30)])
    assert restored[0] == restored[1]
    assert not set(restored[0]) & {proposal.candidate.digest for proposal in first}


def test_a_baseline_of_a_template_that_is_not_searched_is_told_without_harm(
    strategy_type, large_spaces
):
    """The baseline or the scope's champion may use a template that the search does not name."""
    other = large_spaces["wmma"]
    baseline = Proposal(preset_candidate(other.template, "flashcore_a", other.compiled))
    strategy, restored = (
        strategy_type("attention", {"scalar": large_spaces["scalar"]}, [], 3) for _ in range(2)
    )
    strategy.tell(baseline, Objective(0.0))
    restored.restore([Past(baseline.candidate, {}, Objective(0.0))])
    assert all(len(_drive(each_strategy, 5)) == 5 for each_strategy in (strategy, restored))


@pytest.mark.parametrize("stopped_after", quick_first([55, 1, 16], 1))
def test_a_resumed_search_goes_on_as_if_it_had_not_stopped(
    strategy_type, stopped_after, large_spaces, driven
):
    """What a strategy needs again it keeps with each trial, and its draws follow from numbers."""
    whole = driven(strategy_type)[: stopped_after + 12]
    stored = [
        Past(
            candidate_of(candidate_json(proposal.candidate)),
            json.loads(json.dumps(proposal.sampler)),
            _told(proposal.candidate),
        )
        for proposal in whole[:stopped_after]
    ]
    resumed = strategy_type("attention", large_spaces, [], DRIVEN_SEED)
    resumed.restore(stored)
    proposals = _drive(resumed, 12)
    assert [each.candidate for each in proposals] == [
        each.candidate for each in whole[stopped_after:]
    ]
    assert [each.candidate.origin for each in proposals] == [
        each.candidate.origin for each in whole[stopped_after:]
    ]


def test_evolution_names_the_parents_of_its_children(large_spaces):
    spaces = {"wmma": large_spaces["wmma"]}
    proposals = _drive(STRATEGIES["evolution"]("attention", spaces, [], 5), 60)
    kinds = {proposal.candidate.origin.kind for proposal in proposals}
    assert kinds & {OriginKind.CROSSED, OriginKind.MUTATED} and OriginKind.SAMPLED in kinds
    tried = {}
    for proposal in proposals:
        origin = proposal.candidate.origin
        parents = [tried[digest] for digest in origin.parents]
        assert len(parents) == {"sampled": 0, "mutated": 1, "crossed": 2}[origin.kind.value]
        tried[proposal.candidate.digest] = proposal.candidate


def test_several_may_be_in_flight(strategy_type, large_spaces):
    strategy = strategy_type("attention", large_spaces, [], 4)
    flights = [strategy.ask() for _ in range(8)]
    for proposal in reversed(flights):
        strategy.tell(proposal, _told(proposal.candidate))
    assert len({flight.candidate.digest for flight in (*flights, *_drive(strategy, 20))}) == 28


def test_sampler_attributes_are_plain_data(strategy_type, driven):
    for proposal in driven(strategy_type):
        assert json.loads(json.dumps(proposal.sampler)) == proposal.sampler


@pytest.mark.slow
@pytest.mark.parametrize("name", quick_first(["nsga2", "evolution", "tpe"], 1))
def test_a_learning_strategy_leaves_a_wrong_region(name, large_spaces):
    strategy = STRATEGIES[name]("attention", {"wmma": large_spaces["wmma"]}, [], 1)
    proposals = _drive(strategy, 150)
    wrong = [isinstance(_told(proposal.candidate), Infeasible) for proposal in proposals[75:]]
    everywhere = [dict(point)["k_layout"] == "transposed" for point in large_spaces["wmma"].points]
    assert sum(wrong) / len(wrong) < 0.7 * sum(everywhere) / len(everywhere)


def test_a_repaired_point_says_so_and_names_the_values_that_were_replaced(
    strategy_type, large_spaces, driven
):
    proposals = driven(strategy_type)
    repaired = [
        proposal.candidate
        for proposal in proposals
        if proposal.candidate.origin.kind is OriginKind.REPAIRED
    ]
    outside = {"cmaes", "nsga2", "portfolio", "tpe"}  # they do not know the constraints
    assert bool(repaired) == (strategy_type in {STRATEGIES[name] for name in outside})
    for candidate in repaired:
        replaced, values = dict(candidate.origin.wanted), candidate.values()
        assert all(values[name] != value for name, value in replaced.items())
        sampled = tuple({**values, **replaced}.items())
        tried = {proposal.candidate.parameters for proposal in proposals}
        assert sampled in tried or large_spaces[candidate.template].why_not(sampled) is not None
    assert all(
        not proposal.candidate.origin.wanted
        for proposal in proposals
        if proposal.candidate not in repaired
    )


def _check_lineage(proposals, known):
    """Parents were tried before, are of the same template, and left their values to the child."""
    parents_of = {
        OriginKind.SAMPLED: (0,),
        OriginKind.MUTATED: (1,),
        OriginKind.CROSSED: (2,),
        OriginKind.REPAIRED: (0, 1, 2),
    }
    inherited, counted = 0, 0
    for proposal in proposals:
        candidate = proposal.candidate
        origin = candidate.origin
        assert (
            len(set(origin.parents)) == len(origin.parents)
            and len(origin.parents) in parents_of[origin.kind]
        )
        parents = [known[digest] for digest in origin.parents]
        assert {parent.template for parent in parents} <= {candidate.template}
        if parents and origin.kind is not OriginKind.REPAIRED:
            counted += len(candidate.parameters)
            inherited += sum(
                any(parent.values()[name] == value for parent in parents)
                for name, value in candidate.parameters
            )
        known[candidate.digest] = candidate
    assert counted and inherited / counted > 0.8, "all but mutations come from a parent"


def test_nsga2_names_the_parents_of_its_children(large_spaces):
    spaces = {"wmma": large_spaces["wmma"]}
    proposals = _drive(STRATEGIES["nsga2"]("attention", spaces, [], 5), 120)
    _check_lineage(proposals, {})
    kinds = {proposal.candidate.origin.kind for proposal in proposals}
    assert {OriginKind.SAMPLED, OriginKind.CROSSED, OriginKind.REPAIRED} <= kinds


def test_nsga2_names_parents_from_before_it_was_restored(large_spaces):
    spaces = {"wmma": large_spaces["wmma"]}
    first = _drive(STRATEGIES["nsga2"]("attention", spaces, [], 5), 60)
    restored = STRATEGIES["nsga2"]("attention", spaces, [], 5)
    stored = [
        Past(
            candidate_of(candidate_json(proposal.candidate)),
            proposal.sampler,
            _told(proposal.candidate),
        )
        for proposal in first
    ]
    assert [proposal.candidate.origin for proposal in stored] == [
        proposal.candidate.origin for proposal in first
    ]
    restored.restore(stored)
    before = {proposal.candidate.digest: proposal.candidate for proposal in stored}
    proposals = _drive(restored, 40)
    assert any(set(proposal.candidate.origin.parents) & set(before) for proposal in proposals)
    _check_lineage(proposals, before)


def test_nsga2_chooses_as_optunas_own_sampler_does(large_spaces, monkeypatch):
    spaces = {"wmma": large_spaces["wmma"]}
    ours = _drive(STRATEGIES["nsga2"]("attention", spaces, [], 8), DRIVEN)
    monkeypatch.setattr(
        STRATEGIES["nsga2"],
        "sampler",
        lambda self, seed: OrderedParents(seed=seed, population_size=POPULATION),
    )
    optunas = _drive(STRATEGIES["nsga2"]("attention", spaces, [], 8), DRIVEN)
    assert [proposal.candidate.digest for proposal in ours] == [
        proposal.candidate.digest for proposal in optunas
    ]
