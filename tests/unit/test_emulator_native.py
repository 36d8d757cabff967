"""The CUDA-on-CPU emulator, through real kernels: what runs right, and what is caught when it does not."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from search.errors import UsageError
from search.targets.emulator.build import INCLUDE, EmulatorBuild, Module, ModuleFailed
from search.targets.emulator.execute import (Buffer, Launch, NullArgument, PointerArgument, Run, RunResult,
                                             ScalarArgument, execute)

TEMPLATE_INCLUDE = Path(__file__).resolve().parents[2] / "kernel_templates" / "include"
ORDERS = ("forward", "reverse", "seeded:1", "seeded:2")


@pytest.fixture(scope="session")
def emulator(request) -> EmulatorBuild:
    build = EmulatorBuild(Path(request.config.cache.mkdir("emulator")), include_dirs=(TEMPLATE_INCLUDE,))
    build.prepare()
    return build


class Kernel:
    """A kernel text with entry `k`, run on named numpy arrays; outputs come back in their own type."""

    def __init__(self, emulator: EmulatorBuild, text: str, *, counted: bool = False) -> None:
        self.emulator = emulator
        module = emulator.build_module(f'#line 1 "test.cu"\n{text}', ("k",), counted=counted, deadline_s=60)
        assert isinstance(module, Module), module.log
        self.module = module

    def job(self, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray], scalars=(), *, grid=1, block=32, smem=0,
            name="run", **options) -> Run:
        buffers = tuple(Buffer(key, "input", raw(value)) for key, value in inputs.items())
        buffers += tuple(Buffer(key, "output", raw(value)) for key, value in outputs.items())
        arguments = tuple(PointerArgument(one.name) for one in buffers)
        arguments += tuple(one if not isinstance(one, int) else ScalarArgument("int32", one) for one in scalars)
        launch = Launch("k", (grid, 1, 1), (block, 1, 1), smem)
        return Run(name, (launch,), buffers, arguments, **options)

    def run(self, *runs: Run, workers: int = 2, deadline_s: float = 20.0) -> tuple[RunResult, ...]:
        return execute(self.emulator, self.module, runs, workers=workers, deadline_s=deadline_s, memory_bytes=2**31)

    def __call__(self, inputs, outputs, *scalars, **options) -> RunResult:
        return self.run(self.job(inputs, outputs, scalars, **options))[0]


def raw(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def values(result: RunResult, name: str, dtype=np.float32) -> np.ndarray:
    assert result.status == "finished", result.faults
    return result.outputs[name].view(dtype)


def kinds(result: RunResult) -> list[str]:
    return [fault.kind for fault in result.faults]


ADD = """
extern "C" __global__ void k(const float* a, const float* b, float* c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
"""

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

WMMA_GEMM = """
#include <mma.h>
using namespace nvcuda::wmma;
using T = %(dtype)s;
// c[M, N] = a[M, K] b[K, N], one warp a row of tiles
extern "C" __global__ void k(const T* a, const T* b, float* c, int K, int N) {
    fragment<matrix_a, %(m)d, %(n)d, 16, T, %(layout_a)s> tile_a;
    fragment<matrix_b, %(m)d, %(n)d, 16, T, %(layout_b)s> tile_b;
    fragment<accumulator, %(m)d, %(n)d, 16, float> sum;
    fill_fragment(sum, 0.0f);
    const int row = blockIdx.x * %(step_m)d;   // tiles narrower than 16 leave gaps: wmma pointers must be 32-byte aligned
    for (int column = 0; column < N; column += %(step_n)d) {
        fill_fragment(sum, 0.0f);
        for (int k0 = 0; k0 < K; k0 += 16) {
            load_matrix_sync(tile_a, %(at_a)s, %(ld_a)s);
            load_matrix_sync(tile_b, %(at_b)s, %(ld_b)s);
            mma_sync(sum, tile_a, tile_b, sum);
        }
        store_matrix_sync(c + row * N + column, sum, N, mem_row_major);
    }
}
"""


def wmma_gemm(dtype: str, m: int, n: int, a_rows: bool, b_rows: bool) -> str:
    step_m, step_n = max(m, 16), max(n, 16)
    return WMMA_GEMM % dict(
        dtype=dtype, m=m, n=n, step_m=step_m, step_n=step_n, layout_a="row_major" if a_rows else "col_major", layout_b="row_major" if b_rows else "col_major",
        at_a="a + row * K + k0" if a_rows else f"a + k0 * (gridDim.x * {step_m}) + row", ld_a="K" if a_rows else f"gridDim.x * {step_m}",
        at_b="b + k0 * N + column" if b_rows else "b + column * K + k0", ld_b="N" if b_rows else "K")


# --- what runs right ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("order", ORDERS)
def test_vector_add_of_an_odd_size_is_exact_in_every_order(emulator, order):
    a, b = np.random.default_rng(0).random((2, 1001), dtype=np.float32)
    result = Kernel(emulator, ADD)({"a": a, "b": b}, {"c": a}, 1001, grid=8, block=128, order=order)
    np.testing.assert_array_equal(values(result, "c"), a + b)


@pytest.mark.parametrize("order", ORDERS)
def test_block_reduction_through_shuffles_and_shared_memory(emulator, order):
    x = np.random.default_rng(1).integers(-50, 50, (5, 777)).astype(np.float32)
    result = Kernel(emulator, BLOCK_SUM)({"x": x}, {"sums": np.zeros(5, np.float32)}, 777, grid=5, block=256, order=order)
    np.testing.assert_array_equal(values(result, "sums"), x.sum(axis=1))


@pytest.mark.parametrize("a_rows, b_rows", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("m, n", [(16, 16), (32, 8), (8, 32)])
@pytest.mark.parametrize("dtype, numpy_dtype", [("__half", np.float16), ("__nv_bfloat16", ml_dtypes.bfloat16)])
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
    kernel = Kernel(emulator, """
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
}""")
    random = np.random.default_rng(3)
    a, b = random.integers(-4, 5, (2, 16, 16)).astype(np.float16)
    result = kernel({"a": a, "b": b}, {"c": a})
    np.testing.assert_array_equal(values(result, "c", np.float16).reshape(16, 16).T, a @ b + np.float16(2))


def test_wmma_accumulator_lanes_hold_the_documented_elements(emulator):
    kernel = Kernel(emulator, """
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const float* matrix, float* map) {
    fragment<accumulator, 16, 16, 16, float> tile;
    static_assert(tile.num_elements == 8);
    load_matrix_sync(tile, matrix, 16, mem_row_major);
    for (int i = 0; i < tile.num_elements; i++) map[threadIdx.x * 8 + i] = tile.x[i];
}""")
    result = kernel({"matrix": np.arange(256, dtype=np.float32)}, {"map": np.zeros(256, np.float32)})
    lane, i = np.meshgrid(np.arange(32), np.arange(8), indexing="ij")
    row, column = lane // 4 + 8 * (i // 2 % 2), lane % 4 * 2 + i % 2 + 8 * (i // 4)
    np.testing.assert_array_equal(values(result, "map").reshape(32, 8), row * 16 + column)


MMA_GEMM = """
#include "gf/ldmatrix.cuh"
#include "gf/mma.cuh"
#include "gf/shared.cuh"
using T = %s;
// c[16, 8] = a[16, 16] b[16, 8], row major in memory
extern "C" __global__ void k(const T* a, const T* b, float* c) {
    GF_DYNAMIC_SHARED(T, tile_a);
    T* tile_b = tile_a + 256;
    for (int i = threadIdx.x; i < 256; i += 32) tile_a[i] = a[i];
    for (int i = threadIdx.x; i < 128; i += 32) tile_b[i] = b[i];
    __syncthreads();
    const int lane = threadIdx.x;
    unsigned fragment_a[4], fragment_b[2];
    float sum[4] = {};
    gf::ldmatrix(fragment_a, tile_a + lane %% 16 * 16 + lane / 16 * 8);
    gf::ldmatrix_transposed(fragment_b, tile_b + lane %% 16 * 8);
    gf::mma_m16n8k16<T>(sum, fragment_a, fragment_b[0], fragment_b[1]);
    for (int i = 0; i < 4; i++) c[(lane / 4 + i / 2 * 8) * 8 + lane %% 4 * 2 + i %% 2] = sum[i];
}
"""


@pytest.mark.parametrize("dtype, numpy_dtype", [("__half", np.float16), ("__nv_bfloat16", ml_dtypes.bfloat16)])
def test_ldmatrix_feeds_mma(emulator, dtype, numpy_dtype):
    random = np.random.default_rng(4)
    a = random.integers(-8, 9, (16, 16)).astype(numpy_dtype)
    b = random.integers(-8, 9, (16, 8)).astype(numpy_dtype)
    result = Kernel(emulator, MMA_GEMM % dtype)({"a": a, "b": b}, {"c": np.zeros(128, np.float32)}, smem=768)
    np.testing.assert_array_equal(values(result, "c").reshape(16, 8), a.astype(np.float32) @ b.astype(np.float32))


def test_every_16_bit_pattern_converts_as_numpy_converts_it(emulator):
    kernel = Kernel(emulator, """
#include "gf/dtype.cuh"
extern "C" __global__ void k(const __half* h, const __nv_bfloat16* b, float* from_half, float* from_bfloat) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    from_half[i] = gf::to_float(h[i]);
    from_bfloat[i] = gf::to_float(b[i]);
}""")
    patterns = np.arange(65536, dtype=np.uint16)
    blank = np.zeros(65536, np.float32)
    result = kernel({"h": patterns, "b": patterns}, {"from_half": blank, "from_bfloat": blank}, grid=64, block=1024)
    np.testing.assert_array_equal(values(result, "from_half"), patterns.view(np.float16).astype(np.float32))
    np.testing.assert_array_equal(values(result, "from_bfloat"), patterns.view(ml_dtypes.bfloat16).astype(np.float32))


def test_float_rounds_to_16_bits_as_numpy_rounds_it(emulator):
    kernel = Kernel(emulator, """
#include "gf/dtype.cuh"
extern "C" __global__ void k(const float* x, __half* h, __nv_bfloat16* b) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    h[i] = gf::from_float<__half>(x[i]);
    b[i] = gf::from_float<__nv_bfloat16>(x[i]);
}""")
    # Every representable half and bfloat, their midpoints, and those nudged by one unit: all ties and near-ties.
    with np.errstate(all="ignore"):
        bits = np.arange(65536, dtype=np.uint32)
        seeds = np.concatenate([bits << 16, (bits << 16) + 0x8000, np.arange(0, 1 << 31, 1 << 12, dtype=np.uint32)])
        bits = np.concatenate([seeds, seeds + 1, seeds - 1]).astype(np.uint32)
        bits = np.concatenate([bits, np.random.default_rng(5).integers(0, 1 << 32, -len(bits) % 1024, dtype=np.uint32)])
        x = bits.view(np.float32)
        want_half, want_bfloat = x.astype(np.float16), x.astype(ml_dtypes.bfloat16)
    result = kernel({"x": x}, {"h": want_half, "b": want_bfloat}, grid=len(x) // 1024, block=1024)
    for name, want in (("h", want_half), ("b", want_bfloat)):
        got = values(result, name, want.dtype)
        finite = ~np.isnan(x)
        np.testing.assert_array_equal(got.view(np.uint16)[finite], want.view(np.uint16)[finite])
        assert np.isnan(got[~finite].astype(np.float32)).all()


def test_half_arithmetic_rounds_once(emulator):
    kernel = Kernel(emulator, """
extern "C" __global__ void k(const half* a, const half* b, const half* c, half* sum, half* product, half* fused) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    sum[i] = a[i] + b[i];
    product[i] = __hmul(a[i], b[i]);
    fused[i] = __hfma(a[i], b[i], c[i]);
}""")
    patterns = np.random.default_rng(6).integers(0, 0x7c00, (3, 65536)).astype(np.uint16)
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
    """Nearest even half of 80-bit values, chosen among the neighbours of a first guess by exact distance."""
    guess = exact.astype(np.float16)
    finite = np.isfinite(guess)
    best = guess.copy()
    for step in (-1, 1):
        other = (guess.view(np.int16) + np.int16(step)).view(np.float16)
        usable = finite & np.isfinite(other)
        mine, its = np.abs(exact - best.astype(np.longdouble)), np.abs(exact - other.astype(np.longdouble))
        better = usable & ((its < mine) | ((its == mine) & (other.view(np.uint16) % 2 == 0)))
        best = np.where(better, other, best)
    return best


def test_collectives_give_what_the_programming_guide_says(emulator):
    kernel = Kernel(emulator, """
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
}""")
    out = values(kernel({}, {"out": np.zeros(512, np.int32)}, order="seeded:3"), "out", np.int32).reshape(32, 16)
    lane = np.arange(32)
    expected = [50 + 0 * lane, np.where(lane >= 3, lane - 3, lane), np.where(lane + 3 < 32, lane + 3, lane), lane ^ 6,
                lane // 8 * 8 + 2, np.where(lane % 8 + 3 < 8, lane + 3, lane),
                np.int32(sum(1 << i for i in range(0, 32, 3)) - (1 << 32 if 31 % 3 == 0 else 0)) + 0 * lane, 2 + 0 * lane,
                496 + 0 * lane, 11 + 0 * lane, (np.uint32(15) << (lane // 4 * 4).astype(np.uint32)).view(np.int32),
                7 + 0 * lane, 1 + 0 * lane, np.where(lane < 16, lane ^ 1, lane ^ 2), (lane ^ 1) * 2]
    for column, want in enumerate(expected):
        np.testing.assert_array_equal(out[:, column], want, err_msg=f"column {column}")


def test_atomics_from_many_blocks_lose_nothing(emulator):
    kernel = Kernel(emulator, """
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
}""")
    job = kernel.job({}, {"out": np.zeros(3, np.uint32), "sum": np.zeros(1, np.float32)}, grid=50, block=96)
    zeroed = tuple(Buffer(one.name, one.role, one.image, "zero") for one in job.buffers)
    result = kernel.run(Run("zeroed", job.launches, zeroed, job.arguments))[0]
    assert values(result, "out", np.uint32).tolist() == [4800, 4799, 9600]
    assert values(result, "sum").tolist() == [2400.0]


def test_a_spin_on_an_atomic_lets_the_other_thread_run(emulator):
    kernel = Kernel(emulator, """
extern "C" __global__ void k(int* out) {
    __shared__ int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) while (atomicAdd(&flag, 0) == 0) {}
    else if (threadIdx.x == 33) atomicExch(&flag, 1);
    out[threadIdx.x] = 1;
}""")
    for order in ORDERS:
        assert values(kernel({}, {"out": np.zeros(64, np.int32)}, block=64, order=order), "out", np.int32).all()


def test_scalars_and_null_pointers_arrive(emulator):
    kernel = Kernel(emulator, """
extern "C" __global__ void k(double* out, float* nothing, int i, unsigned u, long long l, float f, double d) {
    out[0] = i; out[1] = u; out[2] = double(l); out[3] = f; out[4] = d; out[5] = nothing == nullptr;
}""")
    arguments = (PointerArgument("out"), NullArgument(), ScalarArgument("int32", -7), ScalarArgument("uint32", 2**32 - 1),
                 ScalarArgument("int64", -2**40), ScalarArgument("float32", 0.1), ScalarArgument("float64", 0.1))
    run = Run("scalars", (Launch("k", (1, 1, 1), (1, 1, 1)),), (Buffer("out", "output", np.zeros(48, np.uint8)),), arguments)
    out = values(kernel.run(run)[0], "out", np.float64)
    np.testing.assert_array_equal(out, [-7, 2**32 - 1, -2**40, np.float32(0.1), 0.1, 1])


# --- asynchronous copies -----------------------------------------------------------------------------------------------

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
    assert not values(kernel({"x": x[:4]}, {"y": x}, 0, smem=512), "y").any()   # the source is not read


def test_an_async_copy_that_nobody_waits_for_is_noted(emulator):
    text = ASYNC.replace("    gf::async_copy_wait<0>();\n}", "}") % ""
    result = Kernel(emulator, text)({"x": np.zeros(128, np.float32)}, {"y": np.zeros(128, np.float32)}, 16, smem=512)
    assert result.status == "finished"
    assert [note.kind for note in result.notes] == ["async_copy_unwaited"]


# --- what is caught ----------------------------------------------------------------------------------------------------

def test_a_missing_barrier_shows_as_a_different_result_in_another_order(emulator):
    kernel = Kernel(emulator, """
extern "C" __global__ void k(float* y) {
    __shared__ float tile[64];
    tile[threadIdx.x] = threadIdx.x;
    y[threadIdx.x] = tile[63 - threadIdx.x];
}""")
    blank = np.zeros(64, np.float32)
    forward, reverse = (values(kernel({}, {"y": blank}, block=64, order=order), "y") for order in ("forward", "reverse"))
    assert not np.array_equal(forward, reverse, equal_nan=True)
    assert np.isnan(forward).any() and np.isnan(reverse).any()   # read before written: poison


def test_a_deadlock_names_its_threads_and_lines(emulator):
    kernel = Kernel(emulator, """
extern "C" __global__ void k(float* y) {
    if (threadIdx.x < 32) {
        __syncwarp(threadIdx.x == 3 ? 0x8u : 0xffffffffu);
    }
    __syncthreads();
    y[threadIdx.x] = 0;
}""")
    result = kernel({}, {"y": np.zeros(64, np.float32)}, block=64)
    assert result.status == "fault" and kinds(result) == ["deadlock"]
    sentence = result.faults[0].sentence
    assert "__syncwarp with mask 0xffffffff at test.cu:4" in sentence and "64 of 64 threads" in sentence


def test_exited_threads_are_not_waited_for(emulator):
    kernel = Kernel(emulator, """
extern "C" __global__ void k(float* y, int n) {
    if (threadIdx.x >= n) return;
    __syncthreads();
    y[threadIdx.x] = __shfl_sync(0xffffffffu, float(threadIdx.x), 0);
    __syncwarp();
}""")
    np.testing.assert_array_equal(values(kernel({}, {"y": np.zeros(40, np.float32)}, 40, block=64), "y"),
                                  np.repeat([0, 32], [32, 8]))


@pytest.mark.parametrize("body, words", [
    ("if (threadIdx.x < 16) __syncwarp(); else __shfl_sync(0xffffffffu, 1, 0);", "while other lanes"),
    ("__syncwarp(0xfffffffeu);", "does not name the lane itself"),
    ("if (threadIdx.x < 32) __syncthreads(); else __syncthreads_count(1);", "others of its block wait in the __syncthreads"),
    ("if (threadIdx.x < 32) __syncthreads();\n else __syncthreads();", "of line 3 while others of its block wait in the __sync"),
])
def test_divergent_collectives_are_reported(emulator, body, words):
    result = Kernel(emulator, f'extern "C" __global__ void k(float* y) {{\n{body}\ny[threadIdx.x] = 1;\n}}')(
        {}, {"y": np.zeros(64, np.float32)}, block=64)
    assert result.status == "fault" and kinds(result) == ["divergence"]
    assert words in result.faults[0].sentence


def test_a_matrix_operation_that_some_lanes_skip_is_divergence(emulator):
    kernel = Kernel(emulator, """
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const half* a, float* c) {
    fragment<matrix_a, 16, 16, 16, half, row_major> tile_a;
    fragment<matrix_b, 16, 16, 16, half, row_major> tile_b;
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 0.0f);
    fill_fragment(tile_b, 0.0f);
    if (threadIdx.x != 7) load_matrix_sync(tile_a, a, 16);
    mma_sync(sum, tile_a, tile_b, sum);
    store_matrix_sync(c, sum, 16, mem_row_major);
}""")
    result = kernel({"a": np.zeros(256, np.float16)}, {"c": np.zeros(256, np.float32)})
    assert kinds(result) == ["divergence"] and "lane 7" in result.faults[0].sentence


@pytest.mark.parametrize("access, words", [
    ("*reinterpret_cast<float4*>(y + 1) = make_float4(0, 0, 0, 0);", "multiple of 16"),
    ("*reinterpret_cast<float2*>(y + 1) = make_float2(0, 0);", "multiple of 8"),
    ("atomicAdd(reinterpret_cast<unsigned*>(reinterpret_cast<char*>(y) + 2), 1u);", "multiple of 4"),
    ("GF_DYNAMIC_SHARED(float, s); gf::async_copy<8>(s + 1, y);", "not multiples of 8"),
])
def test_misaligned_accesses_are_reported_with_their_line(emulator, access, words):
    kernel = Kernel(emulator, f"""
#include "gf/async_copy.cuh"
#include "gf/shared.cuh"
extern "C" __global__ void k(float* y) {{
    {access}
}}""")
    result = kernel({}, {"y": np.zeros(64, np.float32)}, block=1, smem=64)
    assert kinds(result) == ["misaligned"] and words in result.faults[0].sentence
    assert result.faults[0].where == ("test.cu", 5)


def test_a_write_just_outside_a_buffer_damages_its_canary(emulator):
    kernel = Kernel(emulator, 'extern "C" __global__ void k(float* y, int n) { y[int(threadIdx.x) - 2] = 1; y[n + threadIdx.x] = 2; }')
    result = kernel({}, {"y": np.zeros(30, np.float32)}, 30, block=2)
    assert result.status == "fault" and kinds(result) == ["out_of_bounds", "out_of_bounds"]
    assert [(one.buffer, one.side, one.damaged_bytes, one.first_offset_bytes) for one in result.canary] == [
        ("y", "before", 8, 1), ("y", "behind", 8, 0)]


def test_a_written_input_is_reported(emulator):
    kernel = Kernel(emulator, 'extern "C" __global__ void k(float* x, float* y) { x[3] = y[0] = 5; }')
    result = kernel({"x": np.zeros(8, np.float32)}, {"y": np.zeros(1, np.float32)}, block=1)
    assert result.input_changed == ("x",) and kinds(result) == ["input_changed"]


WILD = """
extern "C" __global__ void k(float* y, long long offset) {
    if (blockIdx.x == 2 && threadIdx.x == 33)
        y[offset] = 1;
    y[threadIdx.x] = 1;
}
"""


@pytest.mark.parametrize("offset, kind, words", [
    (64 + 12, "out_of_bounds", "48 bytes past the end of 'y'"),
    (1 << 45, "device_fault", "far from every buffer"),
])
def test_a_wild_access_is_named_and_other_runs_are_unharmed(emulator, offset, kind, words):
    kernel = Kernel(emulator, WILD)
    runs = [kernel.job({}, {"y": np.zeros(64, np.float32)}, (ScalarArgument("int64", one),), grid=4, block=64, name=name)
            for name, one in (("first", 0), ("wild", offset), ("last", 1))]
    first, wild, last = kernel.run(*runs)
    assert values(first, "y").all() and values(last, "y").all()
    assert wild.status == "crash" and kinds(wild) == [kind]
    fault = wild.faults[0]
    assert words in fault.sentence
    assert (fault.block, fault.thread, fault.where) == ((2, 0, 0), (33, 0, 0), ("test.cu", 4))


@pytest.mark.parametrize("statement, kind, words", [
    ("float local[40000]; for (int i = 0; i < n; i++) local[i * 7 % 40000] = i; y[0] = local[n];", "device_fault",
     "local memory exceeds"),
    ("volatile int zero = 0; y[0] = n / zero;", "device_fault", "division by zero"),
    ("if (n) __trap();", "device_fault", "__trap()"),
    ("assert(n == 0);", "device_fault", "assert(n == 0)"),
    ("GF_DYNAMIC_SHARED(float, s); s[16 + n] = 1;", "out_of_bounds", "past the end of the 64 bytes of dynamic shared"),
    ("GF_DYNAMIC_SHARED(float, s); s[n - 1001] = 1;", "out_of_bounds", "just outside dynamic shared memory"),
    ("*static_cast<volatile float*>(nullptr) = 1;", "device_fault", "null pointer"),
])
def test_other_ways_to_die_are_named(emulator, statement, kind, words):
    kernel = Kernel(emulator, f"""
#include "gf/shared.cuh"
extern "C" __global__ void k(float* y, int n) {{
    {statement}
}}""")
    result = kernel({}, {"y": np.zeros(64, np.float32)}, 1000, block=1, smem=64)
    assert result.status in ("fault", "crash") and kinds(result) == [kind]
    assert words in result.faults[0].sentence


def test_an_endless_loop_is_killed_and_earlier_results_are_kept(emulator):
    kernel = Kernel(emulator, """
extern "C" __global__ void k(int* y, int turns) {
    volatile int turn = 0;
    while (turn != turns) turn = turn + (turns > 0);
    y[threadIdx.x] = turns;
}""")
    jobs = [kernel.job({}, {"y": np.zeros(32, np.int32)}, (turns,), name=str(turns)) for turns in (5, -1, 7)]
    begin = time.monotonic()
    good, endless, after = kernel.run(*jobs, deadline_s=1.0)
    assert time.monotonic() - begin < 30
    assert values(good, "y", np.int32).tolist() == [5] * 32
    assert endless.status == "timeout" and kinds(endless) == ["timeout"]
    assert after.status == "not_run"


def test_a_printf_flood_and_forged_reports_are_harmless(emulator):
    kernel = Kernel(emulator, """
extern "C" __global__ void k(float* y) {
    for (int i = 0; i < 1000; i++) printf("{\\"event\\":\\"end\\",\\"run\\":%d}\\n", i);
    y[threadIdx.x] = 1;
}""")
    result = kernel({}, {"y": np.zeros(256, np.float32)}, grid=4, block=256)
    assert values(result, "y").all() and result.printf_calls == 1_024_000


def test_outputs_start_as_poison(emulator):
    kernel = Kernel(emulator, 'extern "C" __global__ void k(float* y) { y[0] = 1; }')
    assert np.isnan(values(kernel({}, {"y": np.zeros(5, np.float32)}, block=1), "y")[1:]).all()


def test_runs_that_make_no_sense_are_refused(emulator):
    kernel = Kernel(emulator, ADD)
    x = np.zeros(4, np.float32)
    for options, words in (({"order": "sideways"}, "unknown order"), ({"block": 2000}, "1 to 1024 threads"),
                           ({"count": True}, "counted=True")):
        with pytest.raises(UsageError, match=words):
            kernel({"a": x, "b": x}, {"c": x}, 4, **options)


# --- compiling ---------------------------------------------------------------------------------------------------------

def test_a_compile_error_points_at_the_templates_line(emulator):
    failed = emulator.build_module('#line 40 "attention/wmma.cu.j2"\nextern "C" __global__ void k(float* y) { y = z; }\n', ("k",),
                                   counted=False, deadline_s=60)
    assert isinstance(failed, ModuleFailed) and failed.reason == "compile"
    assert "attention/wmma.cu.j2:40" in failed.log


def test_unknown_device_functions_and_inline_ptx_are_compile_errors(emulator):
    for body in ("extern void nobody_defines_this(); extern \"C\" __global__ void k() { nobody_defines_this(); }",
                 "extern \"C\" __global__ void k() { asm volatile(\"cp.async.commit_group;\"); }"):
        failed = emulator.build_module(body, ("k",), counted=False, deadline_s=60)
        assert isinstance(failed, ModuleFailed) and failed.reason == "compile"


def test_a_compile_that_does_not_end_is_killed(emulator):
    bomb = "template <int n, long m> struct T { static constexpr int v = T<n - 1, m * 2>::v | T<n - 1, m * 2 + 1>::v; };\n" \
           "template <long m> struct T<0, m> { static constexpr int v = 1; };\n" \
           "extern \"C\" __global__ void k(int* y) { *y = T<24, 1>::v; }\n"
    failed = emulator.build_module(bomb, ("k",), counted=False, deadline_s=1.5)
    assert isinstance(failed, ModuleFailed) and failed.reason in ("timeout", "memory")


# --- counters ----------------------------------------------------------------------------------------------------------

COLUMNS = """
extern "C" __global__ void k(float* y) {
    __shared__ float tile[32 * %d];
    const int lane = threadIdx.x;
    for (int i = 0; i < 32; i++) tile[i * %d + lane] = i;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 32; i++)
        sum += tile[lane * %d + i];
    y[lane] = sum;
}
"""


@pytest.mark.parametrize("pitch, factor", [(32, 32), (33, 1)])
def test_bank_conflicts_of_a_column_walk_are_counted_per_line(emulator, pitch, factor):
    kernel = Kernel(emulator, COLUMNS % (pitch, pitch, pitch), counted=True)
    result = kernel({}, {"y": np.zeros(32, np.float32)}, count=True)
    np.testing.assert_array_equal(values(result, "y"), 32 * np.arange(32))
    (line,) = [one for one in result.counters.per_line if one.kind == "shared_read"]
    assert (line.file, line.line, line.count) == ("test.cu", 9, 32)
    assert (line.wavefronts, line.wavefronts_ideal) == (32 * factor, 32)
    assert result.counters.barriers == 1


def test_wide_shared_accesses_are_phased(emulator):
    kernel = Kernel(emulator, """
extern "C" __global__ void k(float* y, int stride) {
    __shared__ float4 tile[256];
    tile[threadIdx.x * stride] = make_float4(1, 2, 3, 4);
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x * stride].w;
}""", counted=True)
    for stride, factor in ((1, 1), (2, 2), (8, 8)):
        counters = kernel({}, {"y": np.zeros(32, np.float32)}, stride, count=True).counters
        (store,) = [one for one in counters.per_line if one.kind == "shared_write"]
        assert (store.wavefronts, store.wavefronts_ideal) == (4 * factor, 4), stride


@pytest.mark.parametrize("stride, sectors", [(1, 4), (8, 32), (2, 8)])
def test_global_sectors_show_coalescing(emulator, stride, sectors):
    kernel = Kernel(emulator, """
extern "C" __global__ void k(const float* x, float* y, int stride) { y[threadIdx.x] = x[threadIdx.x * stride]; }
""", counted=True)
    counters = kernel({"x": np.zeros(256, np.float32)}, {"y": np.zeros(32, np.float32)}, stride, count=True).counters
    (load,) = [one for one in counters.per_line if one.kind == "global_read"]
    assert (load.count, load.sectors, load.sectors_ideal, load.total_bytes) == (1, sectors, 4, 128)
    assert (counters.global_load_bytes, counters.global_store_bytes) == (128, 128)


def test_counted_events_of_a_tensor_core_kernel(emulator):
    kernel = Kernel(emulator, wmma_gemm("__half", 16, 16, True, True), counted=True)
    a, b = np.zeros((32, 48), np.float16), np.zeros((48, 64), np.float16)
    counters = kernel({"a": a, "b": b}, {"c": np.zeros((32, 64), np.float32)}, 48, 64, grid=2, count=True).counters
    assert dict(counters.mma_flop) == {"f16_f32": 2 * 32 * 48 * 64, "bf16_f32": 0, "f16_f16": 0}
    assert counters.global_store_bytes == 32 * 64 * 4


def test_a_sample_of_blocks_is_counted_and_says_so(emulator):
    kernel = Kernel(emulator, ADD, counted=True)
    x = np.zeros(6400, np.float32)
    counters = kernel({"a": x, "b": x}, {"c": x}, 6400, grid=100, block=64, count=True, block_sample=10).counters
    assert (counters.blocks_executed, counters.blocks_total) == (10, 100)
    assert counters.global_store_bytes == 10 * 64 * 4


def test_special_functions_are_counted_per_lane(emulator):
    kernel = Kernel(emulator, """
extern "C" __global__ void k(float* y) { y[threadIdx.x] = exp2f(y[threadIdx.x]) + __expf(1.5f) + rsqrtf(2.0f); }
""", counted=True)
    assert kernel({}, {"y": np.zeros(40, np.float32)}, block=40, count=True).counters.special_function_ops == 120


# --- the headers -------------------------------------------------------------------------------------------------------

def test_device_and_emulated_headers_declare_the_same_primitives():
    emulated = sorted((INCLUDE / "gf").glob("*.cuh"))
    assert emulated
    for header in emulated:
        device = TEMPLATE_INCLUDE / "gf" / header.name
        assert _primitives(device) == _primitives(header), header.name


def _primitives(header: Path) -> set[str]:
    text = header.read_text()
    functions = re.findall(r"__forceinline__\s+[\w:<>\s&*]*?\b(\w+)(?:<\w+>)?\(", text)
    return set(functions) | set(re.findall(r"#define\s+(GF_\w+)", text))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_89", "sm_90"])
def test_device_headers_compile_with_nvcc(tmp_path, architecture):
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not on the PATH")
    source = tmp_path / "headers.cu"
    source.write_text(MMA_GEMM % "__half" + '#include "gf/async_copy.cuh"\n#include "gf/reduce.cuh"\n#include "gf/dtype.cuh"\n')
    subprocess.run([nvcc, f"-arch={architecture}", "-cubin", f"-I{TEMPLATE_INCLUDE}", "-o", tmp_path / "out", source], check=True)
