"""What the emulator computes: collectives, tensor cores, 16-bit formats, asynchronous copies."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from emulator_harness import ADD, MMA_GEMM, ORDERS, Kernel, prepared, values, wmma_gemm
from slow_cases import quick_first

from greenfast.search.targets.emulator.execute import (
    Buffer,
    Launch,
    NullArgument,
    PointerArgument,
    Run,
    ScalarArgument,
)


@pytest.fixture(scope="session")
def emulator(artifacts):
    return prepared(artifacts)


BLOCK_SUM = """
#include "gf/reduce.cuh"
extern "C" __global__ void k(const float* x, float* sums, int n) {
    __shared__ float of_warp[32];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[blockIdx.x * n + i];
    sum = gf::warp_sum(sum);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = gf::warp_sum(threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    }
}
"""


@pytest.mark.parametrize("order", ORDERS)
def test_vector_add_of_an_odd_size_is_exact_in_every_order(emulator, order):
    a, b = np.random.default_rng(0).random((2, 1001), dtype=np.float32)
    result = Kernel(emulator, ADD)({"a": a, "b": b}, {"c": a}, 1001, grid=8, block=128, order=order)
    np.testing.assert_array_equal(values(result, "c"), a + b)


@pytest.mark.parametrize("order", ORDERS)
def test_block_reduction_through_shuffles_and_shared_memory(emulator, order):
    x = np.random.default_rng(1).integers(-50, 50, (5, 777)).astype(np.float32)
    result = Kernel(emulator, BLOCK_SUM)(
        {"x": x}, {"sums": np.zeros(5, np.float32)}, 777, grid=5, block=256, order=order
    )
    np.testing.assert_array_equal(values(result, "sums"), x.sum(axis=1))


@pytest.mark.parametrize(
    "a_rows, b_rows", quick_first([(True, False), (False, True), (True, True)], 1)
)
@pytest.mark.parametrize("m, n", [(16, 16), (32, 8), (8, 32)])
@pytest.mark.parametrize(
    "dtype, numpy_dtype",
    quick_first([("__half", np.float16), ("__nv_bfloat16", ml_dtypes.bfloat16)], 1),
)
def test_wmma_gemm_equals_numpy(emulator, dtype, numpy_dtype, m, n, a_rows, b_rows):
    # Small integers: every product and sum is exact in float32, so equality is asked for.
    random = np.random.default_rng(2)
    rows = 2 * max(m, 16)
    a = random.integers(-8, 9, (rows, 48)).astype(numpy_dtype)
    b = random.integers(-8, 9, (48, 64)).astype(numpy_dtype)
    kernel = Kernel(emulator, wmma_gemm(dtype, m, n, a_rows, b_rows))
    stored = {"a": a if a_rows else a.T, "b": b if b_rows else b.T}
    result = kernel(stored, {"c": np.zeros((rows, 64), np.float32)}, 48, 64, grid=2, block=32)
    want = np.full((rows, 64), np.nan, np.float32)
    computed = np.ix_(np.arange(rows) % max(m, 16) < m, np.arange(64) % max(n, 16) < n)
    want[computed] = (a.astype(np.float32) @ b.astype(np.float32))[computed]
    np.testing.assert_array_equal(values(result, "c").reshape(rows, 64), want)


def test_wmma_with_half_accumulators(emulator):
    kernel = Kernel(
        emulator,
        """
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const half* a, const half* b, half* c) {
    fragment<matrix_a, 16, 16, 16, half, row_major> tile_a;
    fragment<matrix_b, 16, 16, 16, half, row_major> tile_b;
    fragment<accumulator, 16, 16, 16, half> sum;
    fill_fragment(sum, __float2half(2.0f));
    load_matrix_sync(tile_a, a, 16);
    load_matrix_sync(tile_b, b, 16);
    mma_sync(sum, tile_a, tile_b, sum);
    store_matrix_sync(c, sum, 16, mem_col_major);
}""",
    )
    random = np.random.default_rng(3)
    a, b = random.integers(-4, 5, (2, 16, 16)).astype(np.float16)
    result = kernel({"a": a, "b": b}, {"c": a})
    np.testing.assert_array_equal(
        values(result, "c", np.float16).reshape(16, 16).T, a @ b + np.float16(2)
    )


def test_wmma_accumulator_lanes_hold_the_documented_elements(emulator):
    kernel = Kernel(
        emulator,
        """
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const float* matrix, float* map) {
    fragment<accumulator, 16, 16, 16, float> tile;
    static_assert(tile.num_elements == 8);
    load_matrix_sync(tile, matrix, 16, mem_row_major);
    for (int i = 0; i < tile.num_elements; i++) map[threadIdx.x * 8 + i] = tile.x[i];
}""",
    )
    result = kernel(
        {"matrix": np.arange(256, dtype=np.float32)}, {"map": np.zeros(256, np.float32)}
    )
    lane, i = np.meshgrid(np.arange(32), np.arange(8), indexing="ij")
    row, column = lane // 4 + 8 * (i // 2 % 2), lane % 4 * 2 + i % 2 + 8 * (i // 4)
    np.testing.assert_array_equal(values(result, "map").reshape(32, 8), row * 16 + column)


# Rows and columns (base 36) of the first elements of lanes 0 and 5 on an H200.
OBSERVED = {
    ("matrix_a", 16, 16): ("00 01 80 81 08 09 88 89", "12 13 92 93 1a 1b 9a 9b"),
    ("matrix_b", 16, 16): ("00 10 80 90 08 18 88 98", "21 31 a1 b1 29 39 a9 b9"),
    ("matrix_a", 32, 8): (
        "00 01 80 81 08 09 88 89 g0 g1 o0 o1",
        "12 13 92 93 1a 1b 9a 9b h2 h3 p2 p3",
    ),
    ("matrix_b", 32, 8): ("00 10 80 90 00 10 80 90", "21 31 a1 b1 21 31 a1 b1"),
    ("matrix_a", 8, 32): ("00 01 08 09 00 01 08 09", "12 13 1a 1b 12 13 1a 1b"),
    ("matrix_b", 8, 32): (
        "00 10 08 18 80 90 88 98 0g 1g 0o 1o",
        "21 31 29 39 a1 b1 a9 b9 2h 3h 2p 3p",
    ),
    ("accumulator", 32, 8): ("00 01 80 81 g0 g1 o0 o1", "12 13 92 93 h2 h3 p2 p3"),
    ("accumulator", 8, 32): ("00 10 08 18 0g 1g 0o 1o", "21 31 29 39 2h 3h 2p 3p"),
}


@pytest.mark.parametrize("use, m, n", quick_first(OBSERVED, 3))
def test_wmma_fragments_hold_what_a_device_was_seen_to_hold(emulator, use, m, n):
    rows, columns = {"matrix_a": (m, 16), "matrix_b": (16, n), "accumulator": (m, n)}[use]
    layout, load = ("", ", mem_row_major") if use == "accumulator" else (", row_major", "")
    text = f"""
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const half* matrix, float* map) {{
    fragment<{use}, {m}, {n}, 16, half{layout}> tile;
    load_matrix_sync(tile, matrix, {columns}{load});
    for (int i = 0; i < tile.num_elements; i++) map[threadIdx.x * 16 + i] = tile.x[i];
}}"""
    matrix = np.arange(rows * columns).astype(np.float16)
    result = Kernel(emulator, text)({"matrix": matrix}, {"map": np.zeros(512, np.float32)})
    got = values(result, "map").reshape(32, 16)
    for lane, observed in zip((0, 5), OBSERVED[use, m, n], strict=True):
        want = [int(place[0], 36) * columns + int(place[1], 36) for place in observed.split()]
        assert got[lane, : len(want)].tolist() == want


@pytest.mark.parametrize(
    "dtype, numpy_dtype", [("__half", np.float16), ("__nv_bfloat16", ml_dtypes.bfloat16)]
)
def test_ldmatrix_feeds_mma(emulator, dtype, numpy_dtype):
    random = np.random.default_rng(4)
    a = random.integers(-8, 9, (16, 16)).astype(numpy_dtype)
    b = random.integers(-8, 9, (16, 8)).astype(numpy_dtype)
    result = Kernel(emulator, MMA_GEMM % dtype)(
        {"a": a, "b": b}, {"c": np.zeros(128, np.float32)}, smem=768
    )
    np.testing.assert_array_equal(
        values(result, "c").reshape(16, 8), a.astype(np.float32) @ b.astype(np.float32)
    )


def test_every_16_bit_pattern_converts_as_numpy_converts_it(emulator):
    kernel = Kernel(
        emulator,
        """
#include "gf/dtype.cuh"
extern "C" __global__ void k(const __half* h, const __nv_bfloat16* b, float* from_half,
                             float* from_bfloat) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    from_half[i] = gf::to_float(h[i]);
    from_bfloat[i] = gf::to_float(b[i]);
}""",
    )
    patterns = np.arange(65536, dtype=np.uint16)
    blank = np.zeros(65536, np.float32)
    result = kernel(
        {"h": patterns, "b": patterns},
        {"from_half": blank, "from_bfloat": blank},
        grid=64,
        block=1024,
    )
    np.testing.assert_array_equal(
        values(result, "from_half"), patterns.view(np.float16).astype(np.float32)
    )
    np.testing.assert_array_equal(
        values(result, "from_bfloat"), patterns.view(ml_dtypes.bfloat16).astype(np.float32)
    )


def test_float_rounds_to_16_bits_as_numpy_rounds_it(emulator):
    kernel = Kernel(
        emulator,
        """
#include "gf/dtype.cuh"
extern "C" __global__ void k(const float* x, __half* h, __nv_bfloat16* b) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    h[i] = gf::from_float<__half>(x[i]);
    b[i] = gf::from_float<__nv_bfloat16>(x[i]);
}""",
    )
    # Every half and bfloat, their midpoints, and those nudged by one unit: all ties and near-ties.
    with np.errstate(all="ignore"):
        bits = np.arange(65536, dtype=np.uint32)
        seeds = np.concatenate(
            [bits << 16, (bits << 16) + 0x8000, np.arange(0, 1 << 31, 1 << 12, dtype=np.uint32)]
        )
        bits = np.concatenate([seeds, seeds + 1, seeds - 1]).astype(np.uint32)
        bits = np.concatenate(
            [
                bits,
                np.random.default_rng(5).integers(0, 1 << 32, -len(bits) % 1024, dtype=np.uint32),
            ]
        )
        x = bits.view(np.float32)
        want_half, want_bfloat = x.astype(np.float16), x.astype(ml_dtypes.bfloat16)
    result = kernel({"x": x}, {"h": want_half, "b": want_bfloat}, grid=len(x) // 1024, block=1024)
    for name, want in (("h", want_half), ("b", want_bfloat)):
        got = values(result, name, want.dtype)
        finite = ~np.isnan(x)
        np.testing.assert_array_equal(got.view(np.uint16)[finite], want.view(np.uint16)[finite])
        assert np.isnan(got[~finite].astype(np.float32)).all()


def test_half_arithmetic_rounds_once(emulator):
    kernel = Kernel(
        emulator,
        """
#include <cuda_fp16.h>
extern "C" __global__ void k(const half* a, const half* b, const half* c, half* sum, half* product,
                             half* fused) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    sum[i] = a[i] + b[i];
    product[i] = __hmul(a[i], b[i]);
    fused[i] = __hfma(a[i], b[i], c[i]);
}""",
    )
    patterns = np.random.default_rng(6).integers(0, 0x7C00, (3, 65536)).astype(np.uint16)
    patterns |= np.random.default_rng(7).integers(0, 2, (3, 65536)).astype(np.uint16) << 15
    a, b, c = patterns.view(np.float16)
    with np.errstate(all="ignore"):
        exact = a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)
        fused = _round_long_to_half(exact)
        want = {"sum": a + b, "product": a * b, "fused": fused}
    result = kernel({"a": a, "b": b, "c": c}, want, grid=64, block=1024)
    for name, expected in want.items():
        np.testing.assert_array_equal(values(result, name, np.float16), expected, err_msg=name)


def _round_long_to_half(exact: np.ndarray) -> np.ndarray:
    """80-bit values rounded to the nearest half, ties to even, by exact distances."""
    guess = exact.astype(np.float16)
    finite = np.isfinite(guess)
    best = guess.copy()
    for step in (-1, 1):
        other = (guess.view(np.int16) + np.int16(step)).view(np.float16)
        usable = finite & np.isfinite(other)
        mine, its = (
            np.abs(exact - best.astype(np.longdouble)),
            np.abs(exact - other.astype(np.longdouble)),
        )
        better = usable & ((its < mine) | ((its == mine) & (other.view(np.uint16) % 2 == 0)))
        best = np.where(better, other, best)
    return best


def test_collectives_give_what_the_programming_guide_says(emulator):
    kernel = Kernel(
        emulator,
        """
extern "C" __global__ void k(int* out) {
    const int lane = threadIdx.x;
    const unsigned all = 0xffffffffu;
    int* mine = out + lane * 16;
    mine[0] = __shfl_sync(all, lane * 10, 5);
    mine[1] = __shfl_up_sync(all, lane, 3);
    mine[2] = __shfl_down_sync(all, lane, 3);
    mine[3] = __shfl_xor_sync(all, lane, 6);
    mine[4] = __shfl_sync(all, lane, 2, 8);
    mine[5] = __shfl_down_sync(all, lane, 3, 8);
    mine[6] = __ballot_sync(all, lane % 3 == 0);
    mine[7] = __any_sync(all, lane == 31) * 2 + __all_sync(all, lane < 31);
    mine[8] = __reduce_add_sync(all, unsigned(lane));
    mine[9] = __reduce_max_sync(all, lane - 20);
    mine[10] = __match_any_sync(all, lane / 4);
    mine[11] = __syncthreads_count(lane < 7);
    mine[12] = __syncthreads_and(lane < 31) * 2 + __syncthreads_or(lane == 9);
    if (lane < 16) mine[13] = __shfl_xor_sync(0x0000ffffu, lane, 1);
    else mine[13] = __shfl_xor_sync(0xffff0000u, lane, 2);
    mine[14] = int(__shfl_xor_sync(all, (double)lane, 1) * 2.0);
}""",
    )
    out = values(
        kernel({}, {"out": np.zeros(512, np.int32)}, order="seeded:3"), "out", np.int32
    ).reshape(32, 16)
    lane = np.arange(32)
    expected = [
        50 + 0 * lane,
        np.where(lane >= 3, lane - 3, lane),
        np.where(lane + 3 < 32, lane + 3, lane),
        lane ^ 6,
        lane // 8 * 8 + 2,
        np.where(lane % 8 + 3 < 8, lane + 3, lane),
        np.int32(sum(1 << i for i in range(0, 32, 3)) - (1 << 32 if 31 % 3 == 0 else 0)) + 0 * lane,
        2 + 0 * lane,
        496 + 0 * lane,
        11 + 0 * lane,
        (np.uint32(15) << (lane // 4 * 4).astype(np.uint32)).view(np.int32),
        7 + 0 * lane,
        1 + 0 * lane,
        np.where(lane < 16, lane ^ 1, lane ^ 2),
        (lane ^ 1) * 2,
    ]
    for column, want in enumerate(expected):
        np.testing.assert_array_equal(out[:, column], want, err_msg=f"column {column}")


def test_atomics_from_many_blocks_lose_nothing(emulator):
    kernel = Kernel(
        emulator,
        """
extern "C" __global__ void k(unsigned* out, float* sum) {
    __shared__ int in_block;
    if (threadIdx.x == 0) in_block = 0;
    __syncthreads();
    atomicAdd(&in_block, 1);
    atomicMax(out + 1, blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(sum, 0.5f);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(out, unsigned(in_block));
    unsigned old = out[2], seen;
    do { seen = old; old = atomicCAS(out + 2, seen, seen + 2); } while (old != seen);
}""",
    )
    job = kernel.job(
        {}, {"out": np.zeros(3, np.uint32), "sum": np.zeros(1, np.float32)}, grid=50, block=96
    )
    zeroed = tuple(Buffer(buffer.name, buffer.role, buffer.image, "zero") for buffer in job.buffers)
    result = kernel.run(Run("zeroed", job.launches, zeroed, job.arguments))[0]
    assert values(result, "out", np.uint32).tolist() == [4800, 4799, 9600]
    assert values(result, "sum").tolist() == [2400.0]


def test_a_spin_on_an_atomic_lets_the_other_thread_run(emulator):
    kernel = Kernel(
        emulator,
        """
extern "C" __global__ void k(int* out) {
    __shared__ int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) while (atomicAdd(&flag, 0) == 0) {}
    else if (threadIdx.x == 33) atomicExch(&flag, 1);
    out[threadIdx.x] = 1;
}""",
    )
    for order in ORDERS:
        assert values(
            kernel({}, {"out": np.zeros(64, np.int32)}, block=64, order=order), "out", np.int32
        ).all()


def test_scalars_and_null_pointers_arrive(emulator):
    kernel = Kernel(
        emulator,
        """
extern "C" __global__ void k(double* out, float* nothing, int i, unsigned u, long long l, float f,
                             double d) {
    out[0] = i; out[1] = u; out[2] = double(l); out[3] = f; out[4] = d; out[5] = nothing == nullptr;
}""",
    )
    arguments = (
        PointerArgument("out"),
        NullArgument(),
        ScalarArgument("int32", -7),
        ScalarArgument("uint32", 2**32 - 1),
        ScalarArgument("int64", -(2**40)),
        ScalarArgument("float32", 0.1),
        ScalarArgument("float64", 0.1),
    )
    run = Run(
        "scalars",
        (Launch("k", (1, 1, 1), (1, 1, 1)),),
        (Buffer("out", "output", np.zeros(48, np.uint8)),),
        arguments,
    )
    out = values(kernel.run(run)[0], "out", np.float64)
    np.testing.assert_array_equal(out, [-7, 2**32 - 1, -(2**40), np.float32(0.1), 0.1, 1])


ASYNC = """
#include "gf/async_copy.cuh"
#include "gf/shared.cuh"
extern "C" __global__ void k(const float* x, float* y, int valid_bytes) {
    GF_DYNAMIC_SHARED(float, tile);
    gf::async_copy<16>(tile + threadIdx.x * 4, x + threadIdx.x * 4, valid_bytes);
    gf::async_copy_commit();
    %s
    __syncthreads();
    for (int i = threadIdx.x; i < 128; i += 32) y[i] = tile[i];
    __syncthreads();
    gf::async_copy_wait<0>();
}
"""


def test_an_async_copy_lands_at_its_wait_and_not_before(emulator):
    x = np.arange(128, dtype=np.float32)
    waited = Kernel(emulator, ASYNC % "gf::async_copy_wait<0>();")({"x": x}, {"y": x}, 16, smem=512)
    np.testing.assert_array_equal(values(waited, "y"), x)
    early = Kernel(emulator, ASYNC % "gf::async_copy_wait<1>();")({"x": x}, {"y": x}, 16, smem=512)
    assert np.isnan(values(early, "y")).all()


def test_an_async_copy_fills_the_invalid_bytes_with_zero(emulator):
    x = np.arange(1, 129, dtype=np.float32)
    kernel = Kernel(emulator, ASYNC % "gf::async_copy_wait<0>();")
    half = values(kernel({"x": x}, {"y": x}, 8, smem=512), "y").reshape(32, 4)
    np.testing.assert_array_equal(half[:, :2], x.reshape(32, 4)[:, :2])
    np.testing.assert_array_equal(half[:, 2:], 0)
    assert not values(
        kernel({"x": x[:4]}, {"y": x}, 0, smem=512), "y"
    ).any()  # the source is not read


def test_an_async_copy_that_nobody_waits_for_is_noted(emulator):
    text = ASYNC.replace("    gf::async_copy_wait<0>();\n}", "}") % ""
    result = Kernel(emulator, text)(
        {"x": np.zeros(128, np.float32)}, {"y": np.zeros(128, np.float32)}, 16, smem=512
    )
    assert result.status == "finished"
    assert [note.kind for note in result.notes] == ["async_copy_unwaited"]
