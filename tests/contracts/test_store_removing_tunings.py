"""A tuning's bundle is made of all of its searches: they are removed together, or not at all."""

from __future__ import annotations

import pytest
import store_values as values

from greenfast.db.removal import Removal
from greenfast.search.errors import UsageError
from greenfast.search.kernels.frozen import KernelFiles
from greenfast.search.loop.sink import Ended
from greenfast.search.loop.tuning import TuningPlan


@pytest.fixture
def tuning(store):
    """Two searches; the first is completed, with two trials."""
    plans = values.plan(), values.plan(seed=2)
    row = store.submit_tuning(
        TuningPlan("mine", plans[0].kernel, plans[0].target, 1.0, ("small",), (1.0,)),
        plans,
        KernelFiles(()),
    )
    claim = store.claim("worker", values.LEASE_S, row.searches[0].id)
    values.run_trial(store, claim, 0)
    values.run_trial(store, claim, 1)
    store.finish(claim, Ended.COMPLETED, "the budget is spent")
    return store.tuning(row.id)


@pytest.mark.parametrize("number", [None, 1])
def test_a_part_of_a_tuning_stays(store, tuning, number):
    first, second = (row.id for row in tuning.searches)
    with pytest.raises(UsageError) as refused:
        store.remove([(first, number)])
    assert refused.value.code == "search_of_tuning"
    assert f"search {first} belongs to tuning {tuning.id}" in refused.value.message
    assert f"`greenfast rm {first} {second}`" in refused.value.mend
    assert store.tuning(tuning.id) == tuning


def test_a_tuning_goes_with_all_of_its_searches(store, tuning):
    other = store.submit(values.plan())
    names = [(row.id, None) for row in tuning.searches]
    rehearsed = store.rehearse_removal([*names, (other.id, None)])
    assert (rehearsed.tunings, rehearsed.searches, rehearsed.trials) == (1, 3, 2)
    assert store.tuning(tuning.id) == tuning
    assert store.remove(names) == Removal(tunings=1, searches=2, trials=2, sources=2)
    assert store.tunings().items == ()
    assert [row.id for row in store.searches().items] == [other.id]


def test_a_champion_outlives_its_tuning(store, tuning):
    second = tuning.searches[1].id
    claim = store.claim("worker", values.LEASE_S, second)
    store.describe(claim, {"device": "h200"})
    for number in range(3):
        verdict = values.accepted(number, 100.0 - number) if number else None
        values.run_trial(store, claim, number, verdict)
    store.record_confirmation(claim, values.confirmation(1))
    store.finish(claim, Ended.COMPLETED, "the budget is spent")
    store.promote(second, 1)
    names = [(row.id, None) for row in tuning.searches]
    removal = store.remove(names)
    assert (removal.tunings, removal.searches) == (1, 1) and f"{second}/1" in removal.kept
    assert [row.id for row in store.searches().items] == [second]
    assert store.champions().items
