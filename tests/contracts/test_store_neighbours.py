"""The best of other scopes, from a real store: same GPU first, without repetition."""

from __future__ import annotations

import store_values as values
from test_store_champions import COMPILED, searched

from greenfast.db.neighbours import neighbours_of
from greenfast.search.space.candidate import OriginKind


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
