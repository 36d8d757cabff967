"""Copies of plain bytes, and copies within a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bench.correctness.conformance import copy_model
from bench.correctness.conformance.case import Case, blank, poisoned
from bench.correctness.conformance.tensor_copies import aligned, dense_map, random_memory

# Loads of `plan`'s rows (source, shared memory, bytes, target), then a store of each, which is
# a group of its own; before the last ones end, the memory that the first have read is used again.
PLAIN = """
#include "gf/tensor_copy.cuh"
extern "C" __global__ void __launch_bounds__(64)
k(const unsigned char* source, const int* plan, unsigned char* held, unsigned char* stored) {
    alignas(128) __shared__ unsigned char memory[8192];
    __shared__ unsigned long long barriers[2];
    const int thread = threadIdx.x, copies = plan[0];
    if (thread == 0) {
        for (int i = 0; i < 2; i++) gf::mbarrier_init(barriers + i, 1);
        gf::mbarrier_init_fence();
    }
    for (int b = thread; b < 8192; b += 64) memory[b] = 0xee;
    gf::proxy_fence_shared();
    __syncthreads();
    if (thread == 0)
        for (int i = 0; i < copies; i++) {
            const int* row = plan + 1 + i * 4;
            gf::mbarrier_expect_bytes_only(barriers + i % 2, row[2]);
            gf::bulk_load(memory + row[1], source + row[0], row[2], barriers + i % 2);
        }
    if (thread == 0)
        for (int i = 0; i < 2; i++) gf::mbarrier_arrive(barriers + i);
    gf::mbarrier_wait(barriers, 0);
    gf::mbarrier_wait(barriers + 1, 0);
    for (int b = thread; b < 8192; b += 64) held[b] = memory[b];
    __syncthreads();
    if (thread == 0) {
        for (int i = 0; i < copies; i++) {
            const int* row = plan + 1 + i * 4;
            gf::bulk_store(stored + row[3], memory + row[1], row[2]);
            gf::bulk_commit();
        }
        gf::bulk_wait_read<2>();
        const int* first = plan + 1;
        for (int b = 0; b < first[2]; b++) memory[first[1] + b] = 0x77;
        gf::proxy_fence_shared();
        gf::bulk_store(stored + 15872, memory + first[1], first[2]);
        gf::bulk_commit();
        gf::bulk_wait<1>();
        gf::bulk_wait<0>();
    }
}
"""


def plain_copies() -> Case:
    rng = np.random.default_rng(20)
    source = rng.integers(0, 256, 16384, dtype=np.uint8)
    sizes = (16, 32, 48, 112, 128, 496, 1024, 2048, 3008, 16)
    held, stored = np.full(8192, 0xEE, np.uint8), poisoned(16384)
    plan, place, target = [len(sizes)], 0, 16
    for number, size in enumerate(sizes):
        begin = int(rng.integers(0, (16384 - size) // 16)) * 16
        plan += [begin, place, size, target]
        held[place : place + size] = source[begin : begin + size]
        stored[target : target + size] = source[begin : begin + size]
        place += size + 16 * (number % 3)
        target += size + 32
    stored[15872 : 15872 + sizes[0]] = 0x77
    return Case(
        "bulk copies and their groups",
        PLAIN,
        {"source": source, "plan": np.array(plan, np.int32)},
        {"held": blank(np.uint8, 8192), "stored": blank(np.uint8, 16384)},
        block=(64, 1, 1),
        architecture=90,
        expected={"held": held, "stored": stored},
    )


# Within a cluster. `plan`: for each round the rank of the copies, then for each block of the
# cluster four coordinates and the mask of the blocks that get the box. The second cluster of the
# grid copies from one element further along the last axis, of one axis from 16 bytes further.
SLOT_BYTES = 1024
MULTICAST = """
#include "gf/cluster.cuh"
#include "gf/tensor_copy.cuh"
constexpr int blocks = %(blocks)d, slot = 1024;
extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(128)
k(const unsigned char* source, const int* plan, unsigned char* held,
  const __grid_constant__ gf::TensorMap map1, const __grid_constant__ gf::TensorMap map2,
  const __grid_constant__ gf::TensorMap map3, const __grid_constant__ gf::TensorMap map4) {
    alignas(1024) __shared__ unsigned char memory[blocks * slot];
    __shared__ unsigned long long barrier;
    const int thread = threadIdx.x, own = int(gf::cluster_rank()), shift = int(blockIdx.x) / blocks;
    if (thread == 0) {
        gf::mbarrier_init(&barrier, 1);
        gf::mbarrier_init_fence();
    }
    const int rounds = plan[0];
    for (int round = 0; round < rounds; round++) {
        const int* rows = plan + 1 + round * (1 + 5 * blocks);
        const int rank = *rows++;
        for (int b = thread; b < blocks * slot; b += 128) memory[b] = 0xee;
        gf::proxy_fence_shared();
        gf::cluster_sync();
        if (thread == 0) {
            int bytes = 0;
            for (int from = 0; from < blocks; from++)
                bytes += (rows[from * 5 + 4] >> own & 1) * slot;
            if (bytes) gf::mbarrier_expect_bytes(&barrier, bytes);
            else gf::mbarrier_arrive(&barrier);
            const int* at = rows + own * 5;
            const unsigned short mask = at[4];
            unsigned char* to = memory + own * slot;
            if (mask && rank == 1)
                gf::tensor_load_multicast(to, &map1, &barrier, mask, at[0] + 4 * shift);
            if (mask && rank == 2)
                gf::tensor_load_multicast(to, &map2, &barrier, mask, at[0], at[1] + shift);
            if (mask && rank == 3)
                gf::tensor_load_multicast(to, &map3, &barrier, mask, at[0], at[1], at[2] + shift);
            if (mask && rank == 4)
                gf::tensor_load_multicast(to, &map4, &barrier, mask, at[0], at[1], at[2],
                                          at[3] + shift);
        }
        gf::mbarrier_wait(&barrier, round & 1);
        unsigned char* out = held + (blockIdx.x * rounds + round) * (blocks * slot);
        for (int b = thread; b < blocks * slot; b += 128) out[b] = memory[b];
    }
    gf::cluster_sync();
}
"""
MULTICAST_BOXES = ((256,), (32, 8), (16, 8, 2), (32, 4, 2, 1))


def multicasts() -> Iterator[Case]:
    for blocks in (2, 4):
        yield _multicast(blocks)


def _multicast(blocks: int) -> Case:
    rng = np.random.default_rng(40 + blocks)
    dtypes, swizzles = ("float32", "float32", "float32", "float32"), (0, 128, 64, 128)
    maps = []
    for rank, box in enumerate(MULTICAST_BOXES, 1):
        dense = dense_map(rank, dtypes[rank - 1], swizzles[rank - 1], 1280 if rank == 1 else 160)
        maps.append(replace(dense, name=f"map{rank}", box=box))
    memory = max((random_memory(each, rng) for each in maps), key=len)
    whole, clusters = (1 << blocks) - 1, 2
    rounds, plan = [], []
    for rank in (1, 2, 3, 4):
        for masks in (
            [whole] * blocks,
            [1 << (rank + block) % blocks for block in range(blocks)],
            [0] * (blocks - 1) + [whole - 1],
            [int(mask) for mask in rng.integers(0, whole + 1, blocks)],
        ):
            limits = zip(maps[rank - 1].sizes, maps[rank - 1].box, strict=True)
            spans = [(-length + 1, size) for size, length in limits]
            rows = [
                (
                    aligned(maps[rank - 1], [int(rng.integers(*span)) for span in spans]),
                    masks[block],
                )
                for block in range(blocks)
            ]
            rounds.append((maps[rank - 1], rows))
            plan += [rank]
            for at, mask in rows:
                plan += [*at, *[0] * (4 - rank), mask]
    held = np.full((clusters, blocks, len(rounds), blocks, SLOT_BYTES), 0xEE, np.uint8)
    for shift in range(clusters):
        for number, (tensor_map, rows) in enumerate(rounds):
            for slot, (at, mask) in enumerate(rows):
                further = 4 * shift if tensor_map.rank == 1 else shift
                box = copy_model.loaded(tensor_map, memory, [*at[:-1], at[-1] + further])
                places = copy_model.box_places(tensor_map, 0)
                for to in range(blocks):
                    if mask >> to & 1:
                        held[shift, to, number, slot, places] = box
    return Case(
        f"tensor copies to clusters of {blocks}",
        MULTICAST % {"blocks": blocks},
        {"source": memory, "plan": np.array([len(rounds), *plan], np.int32)},
        {"held": blank(np.uint8, *held.shape)},
        maps=tuple(maps),
        grid=(clusters * blocks, 1, 1),
        block=(128, 1, 1),
        cluster=(blocks, 1, 1),
        architecture=90,
        expected={"held": held},
    )


# Each block's bytes to its neighbours: by one copy for several blocks, by copies from shared memory
# to shared memory, by asynchronous stores and by asynchronous updates.
NEIGHBOURS = """
#include "gf/cluster.cuh"
#include "gf/tensor_copy.cuh"
constexpr int blocks = 4, slot = 512;
__device__ __forceinline__ unsigned there(const void* own, unsigned rank) {
    unsigned address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(address)
        : "r"(gf::shared_address(own)), "r"(rank));
    return address;
}
extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(64)
k(const unsigned char* source, unsigned char* multicast, unsigned char* moved, unsigned* stored,
  unsigned* updated) {
    alignas(128) __shared__ unsigned char many[blocks * slot];
    alignas(128) __shared__ unsigned char own[slot];
    alignas(128) __shared__ unsigned char other[2 * slot];
    alignas(16) __shared__ unsigned words[64 * 7];
    __shared__ unsigned sums[8];
    __shared__ unsigned long long barriers[4];
    const unsigned thread = threadIdx.x, rank = gf::cluster_rank(), next = (rank + 1) % blocks;
    const unsigned char* bytes = source + blockIdx.x * slot;
    for (unsigned b = thread; b < blocks * slot; b += 64) many[b] = 0xee;
    for (unsigned b = thread; b < 2 * slot; b += 64) other[b] = 0xee;
    for (unsigned b = thread; b < slot; b += 64) own[b] = bytes[b] ^ 0x55;
    for (unsigned i = thread; i < 64 * 7; i += 64) words[i] = 0;
    if (thread < 8) sums[thread] = thread == 6 ? 0x0f0fff00u : thread == 3 ? 9u : 2u;
    if (thread == 0) {
        for (int i = 0; i < 4; i++) gf::mbarrier_init(barriers + i, 1);
        gf::mbarrier_init_fence();
    }
    gf::proxy_fence_shared();
    gf::cluster_sync();
    if (thread == 0) {
        gf::mbarrier_expect_bytes(barriers, (blocks - 1) * slot);
        gf::mbarrier_expect_bytes(barriers + 1, slot + 16);
        gf::mbarrier_expect_bytes(barriers + 2, 64 * 28);
        gf::mbarrier_expect_bytes(barriers + 3, 64 * 28);
        // To all blocks but the next one.
        const unsigned short mask = 0xf & ~(1 << next);
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
            "[%0], [%1], %2, [%3], %4;" ::"r"(gf::shared_address(many + rank * slot)),
            "l"(bytes), "r"(slot), "r"(gf::shared_address(barriers)), "h"(mask)
            : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], "
            "%2, [%3];" ::"r"(there(other, next)),
            "r"(gf::shared_address(own)), "r"(slot), "r"(there(barriers + 1, next))
            : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], "
            "%2, [%3];" ::"r"(there(other + slot + 32, (rank + 2) % blocks)),
            "r"(gf::shared_address(own + 16)), "r"(16),
            "r"(there(barriers + 1, (rank + 2) % blocks))
            : "memory");
    }
    const unsigned to = (rank + 3) % blocks, barrier = there(barriers + 2, to);
    const unsigned value = blockIdx.x * 64 + thread;
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(
            there(words + thread, to)),
        "r"(value), "r"(barrier)
        : "memory");
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%0], {%1, %2}, "
        "[%3];" ::"r"(
            there(words + 64 + 2 * thread, to)),
        "r"(value + 1), "r"(value + 2), "r"(barrier)
        : "memory");
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [%0], {%1, %2, %3, %4}, "
        "[%5];" ::"r"(there(words + 192 + 4 * thread, to)),
        "r"(value + 3), "r"(value + 4), "r"(value + 5), "r"(value + 6), "r"(barrier)
        : "memory");
    const unsigned updates = there(barriers + 3, to), bit = 1u << thread % 32;
#define UPDATE(number, operation, operand)                                                       \\
    asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes."       \\
                 operation " [%0], %1, [%2];" ::"r"(there(sums + number, to)),                   \\
                 "r"(operand), "r"(updates)                                                      \\
                 : "memory")
    UPDATE(0, "add.u32", value);
    UPDATE(1, "min.s32", int(thread) - 20);
    UPDATE(2, "max.u32", value * 3);
    UPDATE(3, "inc.u32", 10u);
    UPDATE(4, "or.b32", bit & 0x5555u);
    UPDATE(5, "xor.b32", thread < 40 ? bit : 0u);
    UPDATE(6, "and.b32", ~bit | 0xffff00u);
    gf::mbarrier_wait(barriers, 0);
    gf::mbarrier_wait(barriers + 1, 0);
    gf::mbarrier_wait(barriers + 2, 0);
    gf::mbarrier_wait(barriers + 3, 0);
    const unsigned at = blockIdx.x;
    for (unsigned b = thread; b < blocks * slot; b += 64)
        multicast[at * blocks * slot + b] = many[b];
    for (unsigned b = thread; b < 2 * slot; b += 64) moved[at * 2 * slot + b] = other[b];
    for (unsigned i = thread; i < 64 * 7; i += 64) stored[at * 64 * 7 + i] = words[i];
    if (thread < 8) updated[at * 8 + thread] = sums[thread];
    gf::cluster_sync();
}
"""


def neighbours() -> Case:
    rng = np.random.default_rng(50)
    blocks, slot, grid = 4, 512, 8
    source = rng.integers(0, 256, (grid, slot), dtype=np.uint8)
    multicast = np.full((grid, blocks, slot), 0xEE, np.uint8)
    moved = np.full((grid, 2 * slot), 0xEE, np.uint8)
    stored, updated = np.zeros((grid, 448), np.uint32), np.zeros((grid, 8), np.uint32)
    thread = np.arange(64, dtype=np.uint32)
    for block in range(grid):
        first, rank = block // blocks * blocks, block % blocks
        for to in range(blocks):
            if to != (rank + 1) % blocks:
                multicast[first + to, rank] = source[block]
        moved[first + (rank + 1) % blocks, :slot] = source[block] ^ 0x55
        moved[first + (rank + 2) % blocks, slot + 32 : slot + 48] = source[block, 16:32] ^ 0x55
        value, to = block * 64 + thread, first + (rank + 3) % blocks
        of_two, of_four = np.arange(1, 3), np.arange(3, 7)
        parts = (value, (value[:, None] + of_two).ravel(), (value[:, None] + of_four).ravel())
        stored[to] = np.concatenate(parts)
        bits, cleared = np.uint32(1) << thread % 32, np.uint32(0x0F0FFF00)
        counter = 9
        for _ in range(64):
            counter = 0 if counter >= 10 else counter + 1
        for bit in bits:
            cleared &= ~bit | np.uint32(0xFFFF00)
        updated[to] = [
            value.sum() + 2,
            np.uint32(2**32 - 20),
            max(2, value.max() * 3),
            counter,
            2 | 0x5555,
            2 ^ np.bitwise_xor.reduce(bits[:40]),
            cleared,
            2,
        ]
    return Case(
        "copies, stores and updates to other blocks",
        NEIGHBOURS,
        {"source": source},
        {
            "multicast": blank(np.uint8, *multicast.shape),
            "moved": blank(np.uint8, *moved.shape),
            "stored": blank(np.uint32, *stored.shape),
            "updated": blank(np.uint32, *updated.shape),
        },
        grid=(grid, 1, 1),
        block=(64, 1, 1),
        cluster=(blocks, 1, 1),
        architecture=90,
        expected={"multicast": multicast, "moved": moved, "stored": stored, "updated": updated},
    )


def bulk_copies() -> Iterator[Case]:
    yield plain_copies()
    yield from multicasts()
    yield neighbours()
