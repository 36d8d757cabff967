"""What a fence hands on of other threads' writes, and what a volatile store may overwrite.

Each fault stands beside a twin that differs in what orders the two accesses, and passes.
"""

from __future__ import annotations

import pytest
from emulator_harness import only_right, prepared
from slow_cases import quick_first
from test_emulator_ordering import all_find, found, runs


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


OF_A_WARP = """
    if (t >= 32) return;
    if (b == 0) {
        c[t] = t;
        %s
        if (t == 0) { __threadfence(); atomicAdd(w, 1); }
    } else {
        if (t == 0) { while (atomicAdd(w, 0) == 0) { } __threadfence(); }
        __syncwarp();
        c[64 + t] = c[t ^ 1];
    }
"""


def test_a_fence_hands_on_what_the_warp_wrote_before_it_met(emulator):
    only_right(runs(emulator, OF_A_WARP % "__syncwarp();", grid=2))
    assert all_find(runs(emulator, OF_A_WARP % "", grid=2), "race")


OF_ANOTHER_WARP = """
    if (b == 0 && t == 0) { c[5] = 4; __threadfence_block(); atomicAdd(w, 1); }
    if (b == 0 && t == 32) {
        while (atomicAdd(w, 0) == 0) { }
        %s
        atomicAdd(w + 1, 1);
    }
    if (b == 1 && t == 0) { while (atomicAdd(w + 1, 0) == 0) { } __threadfence(); c[6] = c[5]; }
"""


@pytest.mark.parametrize(
    "fence, races", [("__threadfence();", False), ("__threadfence_block();", True), ("", True)]
)
def test_a_fence_hands_on_what_a_flag_inside_the_block_told_its_thread(emulator, fence, races):
    results = runs(emulator, OF_ANOTHER_WARP % fence, grid=2, block=64)
    assert all_find(results, "race") if races else not any(found(results)), found(results)


# A lock that a store frees while others try to take it.
LOCKED = "while (atomicCAS(w + 1, 0, 1)) { } __threadfence(); c[1] += 1; __threadfence(); v[1] = 0;"
STORES_OVER = """
    volatile unsigned* v = w;
    if (b == 0 && t == 0) { atomic%s(w, 5); %s }
    if (b == 0 && t == 32) { %s v[0] = %s; }
"""


@pytest.mark.parametrize("scope", ["", "_block"])
def test_a_volatile_store_over_an_unread_update_is_a_race(emulator, scope):
    """Only where the update comes first is it lost; the order of the two warps decides."""
    body = STORES_OVER % (f"Exch{scope}", "", "", "9")
    first, *_ = found(runs(emulator, body, block=64, workers=1))
    assert first == {"race"}
    (result, *_) = runs(emulator, body, block=64, workers=1)
    assert "overwrites the update by thread 0's atomic" in result.findings[0].sentence


@pytest.mark.parametrize(
    "update, behind, before, value",
    quick_first([
        ("Exch", "", "", "5"),  # the same value
        ("Add", "", "if (v[0] == 0) return;", "0"),  # whoever has read it resets it
        ("Add", "", "if (atomicAdd(w, 1) == 0) return;", "0"),
        ("And", "", "", "9"),  # 0 & 5: nothing is updated
        # a lock that is freed by a store, while others try to take it
        ("Add", LOCKED, f"{LOCKED} return;", "1"),
    ], 2),
)  # fmt: skip
def test_a_volatile_store_that_loses_nothing_is_no_race(emulator, update, behind, before, value):
    only_right(runs(emulator, STORES_OVER % (update, behind, before, value), block=64))


ADDS_TO_IT = """
    volatile unsigned* v = w + 8;
    if (b == 0 && t == 0) { v[0] = 1; %s atomicAdd(w, 1); }
    if (%s) { while (atomicAdd(w, 0) == 0) { } %s }
"""


@pytest.mark.parametrize("where", quick_first(["b == 1 && t == 0", "b == 0 && t == 32"], 1))
def test_a_volatile_store_follows_what_its_thread_has_read(emulator, where):
    fence, sizes = "__threadfence();", {"grid": 2, "block": 64}
    only_right(runs(emulator, ADDS_TO_IT % (fence, where, "v[0] += 2;"), **sizes))
    assert all_find(runs(emulator, ADDS_TO_IT % ("", where, "v[0] += 2;"), **sizes), "race")
    # Without a read nothing says that the other store came first.
    results = runs(emulator, ADDS_TO_IT % (fence, where, "v[0] = 2;"), **sizes)
    assert all_find(results, "race")
    assert "the reading side has no fence" in results[0].findings[0].sentence


# One block could serve the whole queue before another starts, so that no two meet at the lock.
QUEUE = """
    if (t) return;
    while (atomicAdd(w, 1) < 8) {
        while (atomicCAS(w + 1, 0, 1)) { }
        __threadfence();
        c[0] += 1;
        %s
        atomicExch(w + 1, 0);
    }
"""


def test_blocks_share_a_queue_in_a_seeded_order(emulator):
    options = {"grid": 3, "orders": ("seeded:1",), "workers": 1}
    only_right(runs(emulator, QUEUE % "__threadfence();", **options))
    assert all_find(runs(emulator, QUEUE % "", **options), "race")
