"""What threads do together: asynchronous copies, collectives, barriers, atomics, clusters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bench.correctness.conformance.case import Case, blank

# Asynchronous copies, collectives, barriers, atomics.

ASYNC_COPY = """
#include "gf/async_copy.cuh"
template <int bytes>
__device__ void copy(const unsigned char* source, unsigned char* tile, unsigned char* out) {
    gf::async_copy<bytes>(tile + threadIdx.x * 16, source + threadIdx.x * 16,
                          int(threadIdx.x) % (bytes + 1));
    gf::async_copy_commit();
    gf::async_copy_wait<0>();
    for (int i = 0; i < bytes; i++) out[threadIdx.x * bytes + i] = tile[threadIdx.x * 16 + i];
}
extern "C" __global__ void k(const unsigned char* source, unsigned char* of4, unsigned char* of8,
                             unsigned char* of16) {
    __shared__ __align__(16) unsigned char tile[32 * 16];
    copy<4>(source, tile, of4);
    copy<8>(source, tile, of8);
    copy<16>(source, tile, of16);
}
"""

SHUFFLES = """
extern "C" __global__ void k(const int* x, int* index, int* up, int* down, int* exchanged,
                             unsigned* votes) {
    const int lane = threadIdx.x, value = x[lane];
    int row = 0;
    for (int width = 1; width <= 32; width *= 2)
        for (int argument = 0; argument < 40; argument += 3, row++) {
            index[row * 32 + lane] = __shfl_sync(~0u, value, argument, width);
            up[row * 32 + lane] = __shfl_up_sync(~0u, value, argument, width);
            down[row * 32 + lane] = __shfl_down_sync(~0u, value, argument, width);
            exchanged[row * 32 + lane] = __shfl_xor_sync(~0u, value, argument % 32, width);
        }
    votes[lane * 4] = __ballot_sync(~0u, value % 3 == 0);
    votes[lane * 4 + 1] = __any_sync(~0u, value == 7) * 2 + __all_sync(~0u, value > -1000);
    votes[lane * 4 + 2] = __match_any_sync(~0u, value % 5);
    votes[lane * 4 + 3] = lane < 11 ? __ballot_sync(0x7ffu, value & 1) : 0u;
}
"""

REDUCTIONS = """
extern "C" __global__ void k(const int* x, int* whole, unsigned* unsigned_whole, int* part) {
    const int lane = threadIdx.x, value = x[lane];
    whole[lane * 3] = __reduce_add_sync(~0u, value);
    whole[lane * 3 + 1] = __reduce_min_sync(~0u, value);
    whole[lane * 3 + 2] = __reduce_max_sync(~0u, value);
    const unsigned bits = unsigned(value);
    unsigned_whole[lane * 6] = __reduce_add_sync(~0u, bits);
    unsigned_whole[lane * 6 + 1] = __reduce_min_sync(~0u, bits);
    unsigned_whole[lane * 6 + 2] = __reduce_max_sync(~0u, bits);
    unsigned_whole[lane * 6 + 3] = __reduce_and_sync(~0u, bits);
    unsigned_whole[lane * 6 + 4] = __reduce_or_sync(~0u, bits);
    unsigned_whole[lane * 6 + 5] = __reduce_xor_sync(~0u, bits);
    const unsigned mask = lane % 2 ? 0xaaaaaaaau : 0x55555555u;
    part[lane] = __reduce_add_sync(mask, value);
}
"""

BARRIER_VOTES = """
extern "C" __global__ void k(const int* x, int* out) {
    const int i = threadIdx.x;
    out[i * 3] = __syncthreads_count(x[i] & 1);
    out[i * 3 + 1] = __syncthreads_and(x[i] < 100);
    out[i * 3 + 2] = __syncthreads_or(x[i] == 99);
}
"""

HALF_ATOMICS = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void k(const int* x, unsigned* half_sum, unsigned* bfloat_sum,
                             unsigned short* one) {
    __shared__ __half2 half_pair;
    __shared__ __nv_bfloat162 bfloat_pair;
    __shared__ __half single;
    if (threadIdx.x == 0) {
        half_pair = __floats2half2_rn(1.0f, -2.0f);
        bfloat_pair = __floats2bfloat162_rn(0.0f, 4.0f);
        single = __float2half(0.5f);
    }
    __syncthreads();
    const float value = float(x[threadIdx.x]);
    atomicAdd(&half_pair, __floats2half2_rn(value, 1.0f));
    atomicAdd(&bfloat_pair, __floats2bfloat162_rn(1.0f, -value));
    atomicAdd(&single, __float2half(value));
    __syncthreads();
    if (threadIdx.x == 0) {
        *half_sum = *reinterpret_cast<unsigned*>(&half_pair);
        *bfloat_sum = *reinterpret_cast<unsigned*>(&bfloat_pair);
        *one = *reinterpret_cast<unsigned short*>(&single);
    }
}
"""


def async_copies() -> Case:
    return Case(
        "cp.async with zero fill",
        ASYNC_COPY,
        {"source": np.arange(1, 513, dtype=np.uint16).astype(np.uint8)},
        {f"of{size}": blank(np.uint8, 32, size) for size in (4, 8, 16)},
    )


def warp_collectives() -> Iterator[Case]:
    x = np.random.default_rng(10).integers(-99, 100, 32).astype(np.int32)
    rows = 6 * 14
    yield Case(
        "shuffles and votes",
        SHUFFLES,
        {"x": x},
        {name: blank(np.int32, rows, 32) for name in ("index", "up", "down", "exchanged")}
        | {"votes": blank(np.uint32, 32, 4)},
    )
    yield Case(
        "warp reductions",
        REDUCTIONS,
        {"x": x},
        {
            "whole": blank(np.int32, 32, 3),
            "unsigned_whole": blank(np.uint32, 32, 6),
            "part": blank(np.int32, 32),
        },
    )


def barrier_votes() -> Case:
    return Case(
        "__syncthreads with a vote",
        BARRIER_VOTES,
        {"x": np.arange(96, dtype=np.int32)},
        {"out": blank(np.int32, 96, 3)},
        block=(96, 1, 1),
    )


def half_atomics() -> Case:
    return Case(
        "16-bit atomics",
        HALF_ATOMICS,
        {"x": (np.arange(64) % 5 - 2).astype(np.int32)},
        {
            "half_sum": blank(np.uint32, 1),
            "bfloat_sum": blank(np.uint32, 1),
            "one": blank(np.uint16, 1),
        },
        block=(64, 1, 1),
    )


# Clusters.

CLUSTER_IDS = """
#include "gf/cluster.cuh"
extern "C" __global__ void __cluster_dims__(2, 2, 1) k(unsigned* ids) {
    const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
    if (threadIdx.x) return;
    unsigned* out = ids + block * 12;
    out[0] = gf::cluster_rank();
    out[1] = gf::cluster_blocks();
    const uint3 size = gf::cluster_size(), place = gf::cluster_block_index();
    const uint3 cluster = gf::cluster_index();
    out[2] = size.x; out[3] = size.y; out[4] = size.z;
    out[5] = place.x; out[6] = place.y; out[7] = place.z;
    out[8] = cluster.x; out[9] = cluster.y; out[10] = cluster.z;
    out[11] = blockIdx.x;
}
"""

CLUSTER_MEMORY = """
#include "gf/cluster.cuh"
#include "gf/shared.cuh"
extern "C" __global__ void __cluster_dims__(4, 1, 1) k(const int* x, int* from_static,
                                                       int* from_dynamic, int* histogram) {
    __shared__ int own[64];
    __shared__ int bins[8];
    GF_DYNAMIC_SHARED(int, tile);
    const unsigned rank = gf::cluster_rank(), i = threadIdx.x, at = blockIdx.x * 64 + i;
    own[i] = x[at];
    tile[i] = 2 * x[at];
    if (i < 8) bins[i] = 0;
    gf::cluster_sync();
    from_static[at] = gf::map_shared_rank(own, (rank + 1) % 4)[i];
    from_dynamic[at] = gf::map_shared_rank(tile, (rank + 3) % 4)[63 - i];
    atomicAdd(gf::map_shared_rank(bins, unsigned(x[at]) % 4) + x[at] % 8, 1);
    gf::cluster_arrive();
    const int kept = own[i];
    gf::cluster_wait();
    if (i < 8) histogram[blockIdx.x * 8 + i] = bins[i];
    if (kept != x[at]) histogram[0] = -1;
}
"""


def clusters() -> Iterator[Case]:
    yield Case(
        "cluster ids",
        CLUSTER_IDS,
        {},
        {"ids": blank(np.uint32, 24, 12)},
        grid=(6, 4, 1),
        cluster=(2, 2, 1),
        architecture=90,
    )
    x = np.random.default_rng(11).integers(0, 1000, 8 * 64).astype(np.int32)
    yield Case(
        "distributed shared memory",
        CLUSTER_MEMORY,
        {"x": x},
        {
            "from_static": blank(np.int32, 512),
            "from_dynamic": blank(np.int32, 512),
            "histogram": blank(np.int32, 64),
        },
        grid=(8, 1, 1),
        block=(64, 1, 1),
        cluster=(4, 1, 1),
        smem_dynamic_bytes=256,
        architecture=90,
    )
