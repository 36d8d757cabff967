"""The best of other scopes, from a real store: same GPU first, without repetition."""

from __future__ import annotations

import dataclasses
import math

import pytest
import store_values as values
from test_store_champions import COMPILED, ENVIRONMENT, searched

from greenfast.db.neighbours import neighbours_of
from greenfast.search.loop.plan import Neighbour
from greenfast.search.loop.sink import Ended
from greenfast.search.space.candidate import OriginKind
from greenfast.search.verdict import Reason, Stage


def test_champions_of_other_shapes_are_the_neighbours(store):
    plan = values.plan(compiled=COMPILED, target="cuda:0")
    assert neighbours_of(store, plan, "h200") == ()
    for number, workload in enumerate(("mission", "long"), 1):
        store.promote(searched(store, winner=number, workloads=(workload,)), 1)
    neighbours = neighbours_of(store, plan, "h200")
    assert {neighbour.scope for neighbour in neighbours} == {"mission on h200", "long on h200"}
    assert {neighbour.candidate.origin.kind for neighbour in neighbours} == {OriginKind.SEEDED}
    assert len({neighbour.candidate.digest for neighbour in neighbours}) == len(neighbours)
    other = values.plan(compiled=COMPILED, target="cuda:0", templates=("unknown",))
    assert neighbours_of(store, other, "h200") == (), "its templates are not searched"


def _search_of_ten_times(store):
    """Its confirmed winner is trial 1. Trials 4 to 12 are correct; 2 and 3 have no usable time."""
    search = store.submit(values.plan(compiled=COMPILED, target="cuda:0"))
    claim = store.claim("worker", values.LEASE_S, search.id)
    store.describe(claim, ENVIRONMENT)
    verdicts = {
        2: values.rejected(),
        3: values.rejected(Stage.PERFORMANCE, Reason.IMPLAUSIBLE),
        4: values.rejected(Stage.PERFORMANCE, Reason.SLOWER),
    }
    for number in range(13):
        verdict = verdicts.get(number, values.accepted(number, 50.0 + number))
        template = "scalar" if number == 12 else "wmma"
        values.run_trial(store, claim, number, verdict, template)
    store.record_confirmation(claim, values.confirmation(1, True))
    store.finish(claim, Ended.COMPLETED, "the budget is spent")
    store.promote(search.id, 1)
    return search.id


@pytest.mark.parametrize(("strategy", "learns"), [("evolution", True), ("tpe", False)])
def test_outcomes_of_other_scopes_are_frozen_with_a_plan_that_learns_from_them(
    store, strategy, learns
):
    _search_of_ten_times(store)
    plan = values.plan(compiled=COMPILED, target="cuda:0", strategy=strategy)
    (neighbour,) = neighbours_of(store, plan, "h200")
    assert (neighbour.history is not None) is learns
    if not learns:
        return
    known = dict(zip(neighbour.history.points, neighbour.history.logs, strict=True))
    times = {number: 50.0 + number for number in (0, 1, 5, 6, 7, 8, 9, 10, 11)} | {4: 100.0}
    assert known == {
        values.candidate(number).parameters: pytest.approx(math.log(time), abs=1e-4)
        for number, time in times.items()
    }
    stored = store.submit(dataclasses.replace(plan, neighbours=(neighbour,)))
    assert store.plan(stored.id).neighbours == (neighbour,)


def test_few_outcomes_are_the_fastest_and_others_spread_over_the_rest(store):
    search_id = _search_of_ten_times(store)
    times = [time_us for _, time_us in store.spread_of_times(search_id, "wmma", 6)]
    assert times == [50.0, 51.0, 55.0, 56.0, 58.0, 60.0]
    assert len(store.spread_of_times(search_id, "wmma", 7)) == 7
    assert len(store.spread_of_times(search_id, "wmma", 64)) == 10
    assert len(store.spread_of_times(search_id, "scalar", 64)) == 1


def test_a_neighbour_of_an_earlier_version_has_no_outcomes():
    assert Neighbour(values.candidate(1), "long on h200").history is None
