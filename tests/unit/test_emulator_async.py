"""Bulk copies and matrix products: their findings' sentences, and what they count.

Right and wrong pipelines are in the album (relay, product) and in tests/native.
"""

from __future__ import annotations

import numpy as np
import pytest
from checked_runs import checked, lines
from emulator_harness import Kernel, only_right, prepared

from greenfast.search.devices.facts import device
from greenfast.search.targets.emulator.model import warp_mma_rate, warpgroup_mma_rate

TILES, WIDTH = 5, 64
RING = """#include "gf/tensor_copy.cuh"
extern "C" __global__ void k(const float* a, float* c) {
    __shared__ alignas(128) float s[2][64];
    __shared__ unsigned long long full[2], empty[2];
    const int t = threadIdx.x;
    if (t == 0) {
        for (int i = 0; i < 2; ++i) {
            gf::mbarrier_init(full + i, 1);
            gf::mbarrier_init(empty + i, 1);
        }
        gf::mbarrier_init_fence();
    }
    __syncthreads();
    if (t == 0) {
        for (int i = 0; i < 5; ++i) {
            gf::mbarrier_wait(empty + i % 2, i / 2 % 2 ^ 1);
            gf::mbarrier_expect_bytes(full + i % 2, 256);
            gf::bulk_load(s[i % 2], a + 64 * i, 256, full + i % 2);
        }
    } else if (t >= 32) {
        for (int i = 0; i < 5; ++i) {
            gf::mbarrier_wait(full + i % 2, i / 2 % 2);
            c[64 * i + t - 32] = 2 * s[i % 2][t - 32];
            c[64 * i + t] = 2 * s[i % 2][t];
            __syncwarp();
            if (t == 32) gf::mbarrier_arrive(empty + i % 2);
        }
    }
}
"""
LOAD, READ = 18, 23
INPUTS = {"a": np.arange(TILES * WIDTH, dtype=np.float32)}
OUTPUTS = {"c": np.zeros(TILES * WIDTH, np.float32)}


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


def ring(emulator, old="", new="", **options):
    assert old in RING
    return checked(emulator, RING.replace(old, new), INPUTS, OUTPUTS, block=64, **options)


def test_a_ring_of_bulk_copies_is_right_in_every_schedule(emulator):
    results = ring(emulator)
    only_right(results)
    for result in results:
        assert np.array_equal(result.outputs["c"].view(np.float32), 2 * INPUTS["a"])


def test_bytes_that_have_not_landed_are_told_with_both_lines(emulator):
    (result,) = ring(
        emulator,
        "gf::mbarrier_wait(full + i % 2, i / 2 % 2);",
        "if (i != 1) gf::mbarrier_wait(full + i % 2, i / 2 % 2);",
        orders=("forward",),
    )
    assert (LOAD, READ) in lines(result, "in_flight_read"), result.findings
    sentences = [one.sentence for one in result.findings if one.kind == "in_flight_read"]
    assert (
        "while thread 0's bulk copy (test.cu:18) to it is under way: nothing that this thread "
        "waited for tells that the copy is complete" in sentences[0]
    )


def test_a_phase_that_never_ends_names_what_is_missing(emulator):
    for result in ring(
        emulator, "if (t == 32) gf::mbarrier", "if (t == 32 && i != 1) gf::mbarrier"
    ):
        (deadlock,) = (one for one in result.findings if one.kind == "deadlock")
        assert "in mbarrier_wait for phase 0 (parity 0) of the mbarrier at" in deadlock.sentence
        assert "to which 0 of 1 arrivals came" in deadlock.sentence
        assert "test.cu:16" in deadlock.sentence


def test_copies_and_barriers_are_counted(emulator):
    kernel = Kernel(emulator, RING, flavour="counted")
    (result,) = kernel.run(kernel.job(INPUTS, OUTPUTS, block=64, count=True))
    counters = result.counters
    assert counters.bulk_copy_bytes == TILES * WIDTH * 4 == counters.global_load_bytes
    assert counters.mbarrier_operations > 0
    assert counters.copy_rounds == 3  # the first of two places has tiles 0, 2 and 4
    assert counters.wgmma_flop == (("f16_f32", 0), ("bf16_f32", 0), ("fp8_f32", 0))


def test_warpgroups_reach_the_peak_that_single_warps_do_not():
    h200 = device("h200")
    assert warp_mma_rate(h200, "f16") < warpgroup_mma_rate(h200, "f16")
    assert warpgroup_mma_rate(h200, "fp8") == 2 * warpgroup_mma_rate(h200, "f16")
