"""Several objectives: the front, the strategies, refusals, and the views."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re

import numpy as np
import pytest
import store_values as values
from fastapi.testclient import TestClient
from test_stopping import context  # noqa: F401  a fixture

from greenfast.app.service.application import create_app
from greenfast.app.settings import Settings
from greenfast.app.views.pareto import pareto
from greenfast.app.wiring import Services
from greenfast.db import convert
from greenfast.search.devices.facts import device
from greenfast.search.errors import UsageError
from greenfast.search.loop import objectives as rules
from greenfast.search.loop.feedback import told_of
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.start import make_strategy
from greenfast.search.space.candidate import Origin, OriginKind
from greenfast.search.space.space import Space
from greenfast.search.strategies import SEVERAL_OBJECTIVES, STRATEGIES, WITH_POPULATION
from greenfast.search.strategies.base import Infeasible, Objective, Options, Past, Proposal
from greenfast.search.strategies.nsga2 import POPULATION, OrderedParents
from greenfast.search.strategies.objectives import Front, dominates, front_of
from greenfast.search.verdict import Reason, Rejected, Stage

TWO = ("time", "registers")


@pytest.fixture(scope="module")
def spaces(catalogue):
    kernel = catalogue.kernel("attention")
    compiled = kernel.workload("mission").compile_time(kernel)
    return {"wmma": Space(kernel.template("wmma"), compiled, device("h200"))}


def _told(candidate, count=2):
    """Time and registers pull apart: the more of one, the less of the other."""
    chosen = candidate.values()
    if chosen.get("k_layout") == "transposed":
        return Infeasible()
    places = [hash_of(name, value) for name, value in candidate.parameters]
    first, second = sum(places[::2]), sum(places[1::2])
    return Objective(0.1 * first - 0.05 * second, (), (50.0 + second - first, 3.0)[: count - 1])


def hash_of(name, value):
    return sum(map(ord, f"{name}{value}")) % 7


def _drive(strategy, count, told=_told):
    proposals = []
    for _ in range(count):
        proposal = strategy.ask()
        if proposal is None:
            break
        strategy.tell(proposal, told(proposal.candidate))
        proposals.append(proposal)
    return proposals


# ---- the front ----


def test_the_front_is_that_of_comparing_all_with_all():
    dice = random.Random(3)
    for width in (1, 2, 3):
        rows = [tuple(float(dice.randrange(12)) for _ in range(width)) for _ in range(150)]
        expected = {
            place
            for place, row in enumerate(rows)
            if not any(dominates(other, row) for other in rows)
        }
        assert set(front_of(rows)) == expected
        front = Front()
        for row in rows:
            front.add(row, "")
        assert {row for row, _ in front.members} == {rows[place] for place in expected}
    assert front_of([]) == []


# ---- strategies ----


@pytest.mark.parametrize("name", sorted(SEVERAL_OBJECTIVES))
@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_proposals_are_valid_new_and_the_same_for_a_seed(name, count, spaces):
    runs = []
    for _ in range(2):
        strategy = STRATEGIES[name]("attention", spaces, [], 5, Options(count))
        runs.append(_drive(strategy, 40, lambda candidate: _told(candidate, count)))
    digests = [[each.candidate.digest for each in proposals] for proposals in runs]
    assert digests[0] == digests[1] and len(set(digests[0])) == 40
    assert all(spaces["wmma"].why_not(each.candidate.parameters) is None for each in runs[0])


@pytest.mark.parametrize("name", ["evolution", "gp"])
def test_a_resumed_search_of_several_objectives_goes_on_alike(name, spaces):
    whole = _drive(STRATEGIES[name]("attention", spaces, [], 5, Options(2)), 36)
    stored = [
        Past(each.candidate, json.loads(json.dumps(each.sampler)), _told(each.candidate))
        for each in whole[:24]
    ]
    resumed = STRATEGIES[name]("attention", spaces, [], 5, Options(2))
    resumed.restore(stored)
    rest = [each.candidate for each in _drive(resumed, 12)]
    assert rest == [each.candidate for each in whole[24:]]


@pytest.mark.slow
def test_evolution_finds_more_of_the_front_than_a_random_search(spaces):
    def volume(proposals):
        """The area that the front dominates, below a fixed corner."""
        told = [_told(each.candidate) for each in proposals]
        rows = [each.values for each in told if isinstance(each, Objective)]
        area, left = 0.0, 90.0
        for log_ratio, registers in sorted(rows):
            if registers < left:
                area += max(0.0, 6.0 - log_ratio) * (left - registers)
                left = registers
        return area

    with_two = [
        volume(_drive(STRATEGIES["evolution"]("attention", spaces, [], seed, Options(2)), 80))
        for seed in range(2)
    ]
    drawn = [
        volume(_drive(STRATEGIES["random"]("attention", spaces, [], seed), 80)) for seed in range(2)
    ]
    assert np.mean(with_two) > np.mean(drawn)


def test_nsga2_chooses_as_optunas_own_sampler_does_with_two_objectives(spaces, monkeypatch):
    ours = _drive(STRATEGIES["nsga2"]("attention", spaces, [], 8, Options(2)), 60)
    monkeypatch.setattr(
        STRATEGIES["nsga2"],
        "sampler",
        lambda self, seed: OrderedParents(seed=seed, population_size=POPULATION),
    )
    optunas = _drive(STRATEGIES["nsga2"]("attention", spaces, [], 8, Options(2)), 60)
    assert [each.candidate.digest for each in ours] == [each.candidate.digest for each in optunas]


@pytest.mark.parametrize("name", sorted(WITH_POPULATION))
def test_a_population_changes_the_choices(name, spaces):
    ways = [
        [
            each.candidate.digest
            for each in _drive(
                STRATEGIES[name]("attention", spaces, [], 5, Options(population=population)),
                40,
                lambda candidate: _told(candidate, 1),
            )
        ]
        for population in (None, 4)
    ]
    assert ways[0] != ways[1] and len(set(ways[1])) == 40


# ---- requests ----


@pytest.mark.parametrize(
    ("request_of", "code", "sentence"),
    [
        ({"strategy": "tpe"}, "strategy_cannot", "evolution, gp, nsga2"),
        ({"objectives": ("time", "speed")}, "unknown_objective", "shared_memory"),
        ({"objectives": ("time", "time")}, "repeated_objective", "twice"),
        ({"objectives": ("registers",)}, "bad_objectives", "time,registers"),
        ({"population": 3}, "bad_population", "between 4 and 1,000"),
        ({"population": 50}, "bad_population", "at most the number of trials; got 50 with 40"),
        ({"population": 8, "strategy": "gp"}, "strategy_cannot", "cmaes, evolution, nsga2"),
    ],
)
def test_a_request_that_its_strategy_cannot_serve_is_refused(album, request_of, code, sentence):
    given = {"objectives": TWO, **request_of}
    with pytest.raises(UsageError) as error:
        make_plan(SearchRequest("axpy", **given), album)
    assert error.value.code == code
    assert sentence in f"{error.value.message} {error.value.mend}"


def test_a_strategy_without_conditions_is_refused_where_a_parameter_has_one(
    catalogue, album, monkeypatch
):
    monkeypatch.setattr(rules, "WITHOUT_CONDITIONS", frozenset({"cmaes"}))
    template = next(
        template
        for template in catalogue.kernel("attention").templates
        if any(parameter.when is not None for parameter in template.parameters)
    )
    rules.require_conditions("tpe", [template])
    with pytest.raises(UsageError) as error:
        rules.require_conditions("cmaes", [template])
    assert error.value.code == "strategy_cannot" and "evolution" in error.value.mend


def test_a_plan_keeps_its_objectives_and_an_old_plan_has_the_time_alone(album):
    request = SearchRequest("axpy", objectives=("registers", "time"), population=8)
    plan = make_plan(request, album)
    assert (plan.objectives, plan.population) == (TWO, 8)
    document = convert.plan_json(plan)
    assert convert.plan_of(document) == plan
    old = json.loads(document)
    del old["plan"]["objectives"], old["plan"]["population"]
    assert convert.plan_of(json.dumps(old)).objectives == ("time",)


def test_a_strategy_learns_the_objectives_of_the_plan(album, context):  # noqa: F811
    plan = make_plan(SearchRequest("axpy", templates=("right",), objectives=TWO), album)
    assert make_strategy(plan, context).options == Options(2)
    trial = values.trial(3, values.accepted(3, 90.0))
    told = told_of(trial, plan)
    assert len(told.others) == 1 and told.others[0] > 0
    assert told_of(trial, dataclasses.replace(plan, objectives=("time",))).others == ()
    unknown = dataclasses.replace(
        trial, verdict=dataclasses.replace(trial.verdict, gates=trial.verdict.gates[1:])
    )
    assert told_of(unknown, plan) is None, "registers that nobody knows are not told"


def test_a_wrong_value_is_never_a_small_error():
    wrong = values.rejected()
    assert isinstance(wrong, Rejected)
    plan = values.plan(objectives=("time", "error"))
    assert told_of(values.trial(2, wrong), plan) == Infeasible()
    others = rules.others_of(values.accepted(2, 80.0), plan.objectives)
    assert others is not None and math.isfinite(others[0])


# ---- views ----


@pytest.fixture
def served(tmp_path):
    """A store with trials whose times and registers pull apart, and its app."""
    services = Services(Settings.from_environment({"GREENFAST_DATA": str(tmp_path)}))
    search = services.store.submit(values.plan(objectives=TWO))
    claim = services.store.claim("worker", values.LEASE_S)
    for number, time_us in enumerate((100.0, 90.0, 95.0, 70.0)):
        values.run_trial(services.store, claim, number, values.accepted(number, time_us))
    slower = values.rejected(Stage.PERFORMANCE, Reason.SLOWER)
    values.run_trial(services.store, claim, 4, slower)
    values.run_trial(services.store, claim, 5, values.rejected())
    yield services, search.id
    services.close()


def test_the_front_of_a_search_and_its_best(served):
    services, search_id = served
    report = pareto(services.store, search_id)
    assert report.objectives == list(TWO) == report.searched
    best = [trial.number for trial in report.items if trial.is_best]
    assert best == [3] and report.items[0].number == 3, "the fastest correct one is the best"
    assert [trial.number for trial in report.items] == [3, 1, 0, 4]
    assert report.correct == 5, "the slower one counts, and ties with the baseline"
    rows = [tuple(trial.objectives.values()) for trial in report.items]
    assert not any(dominates(a, b) for a in rows for b in rows)
    assert 5 not in {trial.number for trial in report.items}, "a wrong one is on no front"


def test_page_and_rest_show_the_front(served):
    services, search_id = served
    with TestClient(create_app(services), base_url="http://127.0.0.1") as client:
        answer = client.get(f"/api/v1/searches/{search_id}/pareto?objectives=time&objectives=error")
        assert answer.status_code == 200 and answer.json()["objectives"] == ["time", "error"]
        page = client.get(f"/searches/{search_id}/pareto", headers={"accept": "text/html"})
        assert page.status_code == 200 and f"/searches/{search_id}/trials/3" in page.text
        assert "pareto-data" in page.text and ">best</span>" in page.text
        assert "modelled time, µs" in page.text or "measured time, µs" in page.text
        assert "registers per thread" in page.text
        unknown = client.get(f"/api/v1/searches/{search_id}/pareto?objectives=speed")
        assert unknown.status_code == 422 and unknown.json()["code"] == "unknown_objective"
        nowhere = client.get("/api/v1/searches/s_nowhere/pareto")
        assert nowhere.status_code == 404


@pytest.mark.parametrize("name", sorted(SEVERAL_OBJECTIVES))
def test_a_candidate_that_proves_wrong_leaves_the_front(name, spaces):
    strategy = STRATEGIES[name]("attention", spaces, [], 5, Options(2))
    proposals = _drive(strategy, 12)
    fooled = proposals[-1]
    strategy.correct(fooled, Objective(-9.0, (), (1.0,)))
    assert strategy._front.members == [((-9.0, 1.0), "wmma")]
    strategy.correct(fooled, Infeasible())
    told = [_told(each.candidate) for each in proposals[:-1]]
    rows = [each.values for each in told if isinstance(each, Objective)]
    assert {row for row, _ in strategy._front.members} == {rows[at] for at in front_of(rows)}
    assert len(_drive(strategy, 5)) == 5


# ---- lineage ----


@pytest.mark.slow
def test_a_winners_lineage_can_be_walked_by_links(tmp_path):
    """From the winner's page to its parents' pages, and on to a trial without parents."""
    services = Services(Settings.from_environment({"GREENFAST_DATA": str(tmp_path)}))
    search = services.store.submit(values.plan())
    claim = services.store.claim("worker", values.LEASE_S)
    parents: tuple[str, ...] = ()
    for number in range(4):
        trial = values.trial(number, values.accepted(number, 100.0 - number))
        kind = OriginKind.MUTATED if parents else OriginKind.SAMPLED
        candidate = dataclasses.replace(trial.candidate, origin=Origin(kind, parents))
        trial = dataclasses.replace(trial, candidate=candidate)
        services.store.begin(claim, number, Proposal(candidate, trial.sampler))
        services.store.record(claim, trial, values.source(number))
        parents = (candidate.digest,)
    walked, path = [], f"/searches/{search.id}/trials/3"
    with TestClient(create_app(services), base_url="http://127.0.0.1") as client:
        while path:
            page = client.get(path, headers={"accept": "text/html"})
            assert page.status_code == 200
            walked.append(int(path.rsplit("/", 1)[1]))
            origin = re.search(r'id="origin".*?</div>', page.text, re.S)
            links = re.findall(r'href="([^"]+/trials/\d+)"', origin.group(0))
            path = links[0] if links else ""
            assert len(walked) < 5
    services.close()
    assert walked == [3, 2, 1, 0]
