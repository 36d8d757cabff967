"""What a fence hands on of other threads' writes, and what a volatile store may overwrite.

Each fault stands beside a twin that differs in what orders the two accesses, and passes.
"""

from __future__ import annotations

import pytest
from emulator_harness import only_right, prepared
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
