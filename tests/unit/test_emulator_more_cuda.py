"""CUDA that public kernels use now and then: tiles wider than a warp, a thread's own pipeline, DPX
functions, `cuda::ptx`, and `mma.sync` of integers in inline PTX.

One text, compiled once. `bug` plants a defect in each part that has an order to break.
"""

from __future__ import annotations

import numpy as np
import pytest
from device_values import mismatches
from emulator_harness import ORDERS, Kernel, kinds, prepared, values

TEXT = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/pipeline>
#include <cuda/ptx>
namespace cg = cooperative_groups;

__device__ int index[4], random;  // names of C's library that NVRTC does not declare
struct select { float gamma; };

__device__ void of_wide_tiles(const int* x, int* out, int bug) {
    __shared__ int meeting[128];
    const int t = threadIdx.x;
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<64>(block);
    meeting[t] = x[t];
    if (!bug) tile.sync();
    out[t] = meeting[t / 64 * 64 + (t + 32) % 64];                                 // tile
    out[128 + t] = cg::reduce(tile, x[t], cg::plus<int>());
    out[256 + t] = tile.shfl(x[t], 40) + 1000 * tile.any(x[t] == 3) + 10000 * tile.all(x[t] < 99);
    out[384 + t] = int(tile.thread_rank()) + 1000 * int(tile.meta_group_rank()) +
                   10000 * int(tile.meta_group_size());
}

__device__ void of_own_pipeline(const int* x, int* out, int bug) {
    __shared__ int stages[2][128];
    const int t = threadIdx.x;
    auto pipe = cuda::make_pipeline();
    int sum = 0;
    for (int next = 0, now = 0; now < 4; now++) {
        for (; next < 4 && next < now + 2; next++) {
            pipe.producer_acquire();
            cuda::memcpy_async(&stages[next % 2][t], x + next * 128 + t, sizeof(int), pipe);
            pipe.producer_commit();
        }
        if (!bug) pipe.consumer_wait();
        sum += (now + 1) * stages[now % 2][t];                                     // pipeline
        pipe.consumer_release();
    }
    out[512 + t] = sum;
}

__device__ void of_integers(const unsigned* a, const unsigned* b, int* out) {
    const int lane = threadIdx.x % 32;
    int d[4] = {1, 2, 3, 4}, e[4] = {0, 0, 0, 0}, f[2] = {0, 0}, g[4] = {2147483647, 0, 0, 0};
    const unsigned *p = a + 4 * lane, *q = b + 2 * lane;
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(q[0]), "r"(q[1]));
    asm("mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(e[0]), "+r"(e[1]), "+r"(e[2]), "+r"(e[3])
        : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(q[0]), "r"(q[1]));
    asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+r"(f[0]), "+r"(f[1]) : "r"(p[0]), "r"(q[0]));
    asm("mma.sync.aligned.m16n8k16.row.col.satfinite.s32.u8.u8.s32 {%0, %1, %2, %3}, "
        "{%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+r"(g[0]), "+r"(g[1]), "+r"(g[2]), "+r"(g[3]) : "r"(p[0]), "r"(p[1]), "r"(q[0]));
    int* row = out + 640 + 14 * lane;
    for (int i = 0; i < 4; i++) row[i] = d[i], row[4 + i] = e[i], row[10 + i] = g[i];
    row[8] = f[0], row[9] = f[1];
}

__device__ void of_ptx(const int* x, int* out, int bug) {
    namespace ptx = cuda::ptx;
    __shared__ alignas(128) int tile[128];
    __shared__ cuda::std::uint64_t full;
    const unsigned t = ptx::get_sreg_tid_x();
    if (t == 0) {
        ptx::mbarrier_init(&full, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full,
                                       unsigned(sizeof tile));
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, x, unsigned(sizeof tile),
                           &full);
    }
    __syncthreads();
    while (!ptx::mbarrier_try_wait_parity(&full, 0)) {}
    const int value = tile[t ^ 1];
    __syncthreads();
    tile[t] = value + 1;
    if (!bug) ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (t == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + 1088, tile,      // ptx
                           unsigned(sizeof tile));
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    }
}

extern "C" __global__ void k(const int* x, const unsigned* a, const unsigned* b, int* out,
                             int bug) {
    of_wide_tiles(x, out, bug == 1);
    of_own_pipeline(x, out, bug == 2);
    of_ptx(x, out, bug == 4);
    if (threadIdx.x < 32 && !(bug == 3 && threadIdx.x == 7)) of_integers(a, b, out);
}
"""


@pytest.fixture(scope="module")
def checked(artifacts):
    return Kernel(prepared(artifacts), TEXT, flavour="checked")


@pytest.fixture(scope="module")
def inputs():
    random = np.random.default_rng(7)
    x = random.integers(0, 90, 512).astype(np.int32)
    x[70] = 3
    words = random.integers(0, 2**32, 192, dtype=np.uint64).astype(np.uint32)
    return {"x": x, "a": words[:128], "b": words[128:]}


def jobs(checked, inputs, bug):
    out = np.zeros(640 + 14 * 32 + 128, np.int32)
    return [
        checked.job(inputs, {"out": out}, (bug,), block=128, check=True, order=order, name=order)
        for order in ORDERS
    ]


def elements(words, registers, bits, kind):
    """The elements of each lane's registers: [32, registers, 32 / bits]."""
    parts = words[:, :registers, None] >> (bits * np.arange(32 // bits)).astype(np.uint32)
    parts = (parts & ((1 << bits) - 1)).astype(np.int64)
    if kind == "s":
        parts -= (parts >> (bits - 1)) << bits
    return parts


def product(inputs, rows, depth, bits, types):
    """A times B as the PTX ISA lays their registers out, and each lane's sums of it."""
    n, lanes = 32 // bits, np.arange(32)
    of_a = elements(inputs["a"].reshape(32, 4), rows * depth // 32 // n, bits, types[0])
    of_b = elements(inputs["b"].reshape(32, 2), depth // 4 // n, bits, types[1])
    a, b = np.zeros((rows, depth), np.int64), np.zeros((depth, 8), np.int64)
    for lane in lanes:
        group, place = divmod(lane, 4)
        for register, parts in enumerate(of_a[lane]):
            first = n * place + 4 * n * (register // 2)
            a[group + 8 * (register % 2), first : first + n] = parts
        for register, parts in enumerate(of_b[lane]):
            first = n * place + 4 * n * register
            b[first : first + n, group] = parts
    sums = np.arange(rows // 4)
    return (a @ b)[lanes[:, None] // 4 + 8 * (sums // 2), lanes[:, None] % 4 * 2 + sums % 2]


def test_each_part_computes_what_numpy_does(checked, inputs):
    x = inputs["x"][:128].astype(np.int64)
    t = np.arange(128)
    tiles = x.reshape(2, 64)
    want = np.concatenate(
        [
            tiles[:, (np.arange(64) + 32) % 64].ravel(),
            np.repeat(tiles.sum(1), 64),
            np.repeat(tiles[:, 40] + 1000 * (tiles == 3).any(1) + 10000, 64),
            t % 64 + 1000 * (t // 64) + 20000,
            (inputs["x"].reshape(4, 128) * np.arange(1, 5)[:, None]).sum(0),
        ]
    )
    saturated = product(inputs, 16, 16, 8, "uu")
    saturated[:, 0] = 2**31 - 1
    of_lanes = np.concatenate(
        [
            product(inputs, 16, 32, 8, "su") + np.arange(1, 5),
            product(inputs, 16, 64, 4, "su"),
            product(inputs, 8, 16, 8, "us"),
            saturated,
        ],
        axis=1,
    )
    for result in checked.run(*jobs(checked, inputs, 0)):
        assert result.findings == () and kinds(result) == []
        out = values(result, "out", np.int32)
        assert np.array_equal(out[:640], want)
        assert np.array_equal(out[640:1088].reshape(32, 14), of_lanes)
        assert np.array_equal(out[1088:], x[t ^ 1] + 1)


@pytest.mark.parametrize(
    "bug, kind",
    [
        (1, {"race", "uninitialised"}),  # by the schedule
        (2, {"in_flight_read", "race", "unwaited_copy"}),
        (3, {"divergence"}),
        (4, {"race"}),
    ],
)
def test_a_planted_defect_is_found_in_every_schedule(checked, inputs, bug, kind):
    for result in checked.run(*jobs(checked, inputs, bug)):
        noted = {finding.kind for finding in result.findings} | set(kinds(result))
        assert noted and noted <= kind, (noted, result.faults)


def halves(high, low):
    return (high & 0xFFFF) << 16 | (low & 0xFFFF)


def test_dpx_functions(artifacts):
    """CUDA Math API, "SIMD Intrinsics"; sums wrap."""
    a, b, c = halves(-5, 7), halves(3, 7), halves(-1, 40000)
    texts = f"zero + {a}u", f"zero + {b}u", f"zero + {c}u"
    three, two = ", ".join(texts), ", ".join(texts[:2])
    cases = [
        ("__vimax3_s32(zero - 5, 3, -9)", 3),
        ("__vimin3_u32(zero - 5, 3, 9)", 3),
        ("__vimax3_s32_relu(zero - 5, -3, -9)", 0),
        ("__vimin_s32_relu(zero - 5, 3)", 0),
        ("__viaddmax_s32(zero + 2147483647, 1, -7)", 2**32 - 7),
        ("__viaddmin_u32(zero - 1, 2, 7)", 1),
        ("__viaddmax_s32_relu(zero - 5, 3, -9)", 0),
        (f"__vimax3_s16x2({three})", halves(3, 7)),
        (f"__vimin3_s16x2({three})", halves(-5, 40000)),
        (f"__vimax3_u16x2({three})", halves(-1, 40000)),
        (f"__vimin3_u16x2({three})", halves(3, 7)),
        (f"__viaddmax_s16x2({three})", halves(-1, 14)),
        (f"__viaddmin_u16x2({three})", halves(-2, 14)),
        (f"__viaddmin_s16x2_relu({three})", 0),
        (f"__vimax_s16x2_relu({two})", halves(3, 7)),
        ("__viaddmax_s16x2(zero + 0x00007fffu, 1, 0)", 0),
    ]
    helpers = """
__device__ unsigned first_of_words(int a, int b) {
    bool greater, smaller;
    const int most = __vibmax_s32(a, b, &greater), least = __vibmin_s32(a, b, &smaller);
    return 1000 * most + 100 * least + 10 * greater + smaller;
}
__device__ unsigned first_of_halves(unsigned a, unsigned b) {
    bool high, low;
    const unsigned most = __vibmax_s16x2(a, b, &high, &low);
    return (most == __vmaxs2(a, b)) * 100 + high * 10 + low;
}
"""
    cases += [
        ("first_of_words(zero + 4, 3)", 4310),
        ("first_of_words(zero + 3, 3)", 3311),
        (f"first_of_halves({two})", 101),
    ]
    assert mismatches(artifacts, cases, helpers=helpers) == []
