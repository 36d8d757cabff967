"""Hand-overs between blocks that are too narrow: of fences, and of relaxed PTX operations.

Each race stands beside a twin that differs in its scope alone, and passes.
"""

from __future__ import annotations

import numpy as np
import pytest
from emulator_harness import ORDERS, Kernel, only_right, prepared
from slow_cases import quick_first
from test_emulator_ordering import all_find, runs


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


# `c` holds nothing before the launch, `w` and `ready` hold zeros.
PAYLOAD = """
__device__ volatile unsigned ready[2];
extern "C" __global__ void k(const float* a, volatile float* c, int mode) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        c[5] = a[0];
        if (mode == 0) { } else if (mode == 1) __threadfence_block(); else __threadfence();
        ready[0] = 1;
    } else {
        while (ready[0] == 0) { }
        c[6] = c[5];
    }
}
"""


@pytest.mark.parametrize("mode, races", [(0, True), (1, True), (2, False)])
def test_a_volatile_value_needs_a_fence_of_the_device_before_its_flag(emulator, mode, races):
    kernel = Kernel(emulator, PAYLOAD, flavour="checked")
    a, c = {"a": np.ones(64, np.float32)}, {"c": np.zeros(64, np.float32)}
    results = kernel.run(
        *(kernel.job(a, c, (mode,), grid=2, check=True, order=o, name=o) for o in ORDERS)
    )
    if not races:
        only_right(results)
        return
    assert all_find(results, "race"), results
    sentences = {finding.sentence for result in results for finding in result.findings}
    assert all("the only write of these bytes" in sentence for sentence in sentences), sentences


LOAD = 'asm volatile("ld.%s.global.u32 %%0, [%%1];" : "=r"(x) : "l"(w) : "memory");'
STORE = 'asm volatile("%s.global%s.u32 [%%0], %%1;" :: "l"(w), "r"(1) : "memory");'


def handed_over(store: str, operation: str, load: str) -> str:
    first = f"c[5] = 4; __threadfence(); {STORE % (store, operation)}"
    second = f"unsigned x = 0; while (x == 0) {{ {LOAD % load} }} __threadfence(); c[6] = c[5];"
    return f"if (t) return; if (b == 0) {{ {first} }} else {{ {second} }}"


@pytest.mark.parametrize(
    "store, operation, load, races",
    quick_first(
        [
            ("st.relaxed.cta", "", "acquire.gpu", True),
            ("st.release.gpu", "", "relaxed.cta", True),
            ("red.relaxed.cta", ".add", "acquire.gpu", True),
            ("st.release.gpu", "", "acquire.gpu", False),
        ],
        2,
    ),
)
def test_relaxed_ptx_of_a_blocks_scope_orders_no_other_block(
    emulator, store, operation, load, races
):
    results = runs(emulator, handed_over(store, operation, load), grid=2)
    assert all_find(results, "race") if races else not any(r.findings for r in results), results


def test_relaxed_ptx_of_a_blocks_scope_orders_its_own_threads(emulator):
    store, load = STORE % ("st.release.cta", ""), LOAD % "acquire.cta"
    body = f"""
    w += b;
    if (t == 0) {{ c[b] = 4; {store} }}
    if (t == 32) {{ unsigned x = 0; while (x == 0) {{ {load} }} c[8 + b] = c[b]; }}"""
    only_right(runs(emulator, body, grid=2, block=64))


ONE_VALUE = "for (int i = t; i < 1024; i += 32) c[i] = %s;"


@pytest.mark.parametrize("value, races", [("4", False), ("4 + (b == 39)", True)])
def test_stores_of_one_value_are_told_from_others_on_two_cores(emulator, value, races):
    """Whichever store lands first: blocks of two workers store to the same words at once."""
    results = runs(emulator, ONE_VALUE % value, grid=40, orders=ORDERS * 2)
    assert all_find(results, "race") if races else not any(r.findings for r in results)
