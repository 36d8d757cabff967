"""Unusual ways to hand words over: each kernel is right, and wrong with `bug`."""

from __future__ import annotations

import re

import numpy as np
import pytest
from emulator_harness import ORDERS, prepared
from slow_cases import quick_first

from greenfast.search.targets.emulator.build import Module
from greenfast.search.targets.emulator.execute import execute
from greenfast.search.targets.emulator.runs import (
    Buffer,
    Launch,
    PointerArgument,
    Run,
    ScalarArgument,
)

TEXT = """
#define K(name) extern "C" __global__ void name(const float* a, float* c, unsigned* w, int bug)
#define T const int t = threadIdx.x, b = blockIdx.x;
K(half_warps_one_of_which_has_ended) {
    T __shared__ float s[64];
    s[t] = t;
    if (t % 32 < 16) return;
    __syncwarp(0xffff0000);
    c[b * 64 + t] = s[bug ? t - 16 : t ^ 15];
}
K(volatile_ticket_lock) {
    T if (t % 32) return;
    const unsigned mine = atomicAdd(&w[0], 1u);
    volatile unsigned* serving = w + 1;
    while (*serving != mine) {}
    __threadfence();
    c[0] += 1;
    if (!bug) __threadfence();
    *serving = mine + 1;
}
K(ring_of_volatile_flags) {
    T __shared__ float ring[2][32];
    __shared__ volatile int full[2], empty[2];
    if (t < 2) full[t] = 0, empty[t] = 1;
    __syncthreads();
    const int lane = t % 32;
    float sum = 0;
    for (int i = 0; i < 6; i++) {
        volatile int* awaited = (t < 32 ? empty : full) + i % 2;
        volatile int* told = (t < 32 ? full : empty) + i % 2;
        while (!*awaited) {}
        __threadfence_block();
        __syncwarp();
        if (lane == 0) *awaited = 0;
        if (t < 32) ring[i % 2][lane] = i; else sum += ring[i % 2][31 - lane];
        __syncwarp();
        if (!bug || t < 32) __threadfence_block();
        if (lane == 0) *told = 1;
    }
    c[b * 64 + t] = sum;
}
K(volatile_counter_that_is_no_atomic) {
    T volatile unsigned* v = w + 1;
    if (t == 0 && (bug || b == 0)) *v = *v + 1;
}
K(counter_reset_by_the_last_block) {  // as in the programming guide
    T __shared__ bool last;
    c[64 + b * 64 + t] = a[t];
    __threadfence();
    __syncthreads();
    if (t == 0) last = atomicInc(&w[0], gridDim.x) == gridDim.x - 1;
    __syncthreads();
    if (bug && t == 0) w[0] = 0;
    if (!last) return;
    volatile float* parts = c + 64;
    float sum = 0;
    for (int i = 0; i < gridDim.x; i++) sum += parts[i * 64 + t];
    c[t] = sum;
    if (t == 0) w[0] = 0;
}
K(sum_by_compare_and_swap) {  // as in the programming guide: its first load is plain
    T unsigned *address = w + 16, old = *address, assumed;
    do {
        assumed = old;
        old = atomicCAS(address, assumed, __float_as_uint(1.0f + __uint_as_float(assumed)));
    } while (assumed != old);
    if (bug && *address == 7) c[0] = 1;
}
K(byte_of_a_word_by_compare_and_swap) {
    T __shared__ unsigned word[2];
    if (t < 2) word[t] = 0;
    __syncthreads();
    if (t < 32) {
        unsigned old = word[0], assumed;
        do {
            assumed = old;
            old = atomicCAS(word, assumed, (assumed & ~255u) | ((assumed + 1) & 255u));
        } while (assumed != old);
    } else if (t == 32)
        ((unsigned char*)word)[bug ? 2 : 6] = 7;
    __syncthreads();
    c[b * 64 + t] = word[0];
}
K(plain_read_before_another_swap) {
    T const unsigned seen = bug ? w[32] : 0;
    atomicCAS(w + (bug ? 33 : 32), seen, seen + 1);
    atomicAdd(w + 32, 1u);
}
K(lock_of_a_warp) {  // its first lane takes and leaves it, and each lane has fences of its own
    T const int lane = t % 32;
    if (lane == 0) while (atomicExch(&w[0], 1u)) {}
    __syncwarp();
    __threadfence();
    c[lane] += 1;
    if (!bug) __threadfence();
    __syncwarp();
    if (lane == 0) atomicExch(&w[0], 0u);
}
K(lock_of_a_warp_read_without_a_fence) {
    T const int lane = t % 32;
    if (lane == 0) while (atomicExch(&w[0], 1u)) {}
    __syncwarp();
    if (!bug) __threadfence();
    c[lane] += 1;
    __threadfence();
    __syncwarp();
    if (lane == 0) atomicExch(&w[0], 0u);
}
K(lock_of_a_warp_left_too_early) {
    T const int lane = t % 32;
    if (lane == 0) while (atomicCAS(&w[0], 0u, 1u)) {}
    __syncwarp();
    __threadfence();
    c[lane] += 1;
    __threadfence();
    if (!bug) __syncwarp();
    if (lane == 0) atomicExch(&w[0], 0u);
}
"""
NAMES = re.findall(r"K\((\w+)\) {", TEXT)


@pytest.fixture(scope="module")
def judged(artifacts):
    """The findings of each kernel, right and wrong, in each order."""
    emulator = prepared(artifacts)
    text = f'#line 1 "test.cu"\n{TEXT}'
    module = emulator.build_module(text, tuple(NAMES), flavour="checked", deadline_s=60)
    assert isinstance(module, Module), module.log
    zeros = np.zeros(4096, np.uint8)
    buffers = (
        Buffer("a", "input", np.ones(1024, np.float32).view(np.uint8)),
        Buffer("c", "output", zeros, "zero"),
        Buffer("w", "workspace", zeros, "zero"),
    )
    pointers = tuple(PointerArgument(buffer.name) for buffer in buffers)
    runs = [
        Run(
            f"{name} {bug}",
            (Launch(name, (3, 1, 1), (64, 1, 1), 0),),
            buffers,
            (*pointers, ScalarArgument("int32", bug)),
            check=True,
            order=order,
        )
        for name in NAMES
        for bug in (0, 1)
        for order in ORDERS
    ]
    results = execute(emulator, module, tuple(runs), workers=2, deadline_s=20.0, memory_bytes=2**31)
    sentences: dict[str, list[list[str]]] = {}
    for result in results:
        assert not result.faults, (result.name, result.faults)
        sentences.setdefault(result.name, []).append(
            [finding.sentence for finding in result.findings]
        )
    return sentences


# In the seeded order, blocks give way before they store: all of them read before one has written.
READ_BEFORE_WRITTEN = ("volatile_counter_that_is_no_atomic",)
SEEDED = [order for order in ORDERS if order not in ("forward", "reverse")]


@pytest.mark.parametrize("name", quick_first(NAMES, 5))
def test_a_right_hand_over_is_no_race_and_its_wrong_twin_is_one_in_every_order(judged, name):
    assert judged[f"{name} 0"] == [[]] * len(ORDERS)
    wrong = judged[f"{name} 1"]
    if name in READ_BEFORE_WRITTEN:
        wrong = [order for order, how in zip(wrong, ORDERS, strict=True) if how not in SEEDED]
    assert all(any("not ordered before" in text for text in order) for order in wrong), wrong
