"""A kernel text with entry `k`, built and run by the emulator on named numpy arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from greenfast.search.targets.emulator.build import EmulatorBuild, Module
from greenfast.search.targets.emulator.execute import (
    Buffer,
    Launch,
    PointerArgument,
    Run,
    RunResult,
    ScalarArgument,
    execute,
)

TEMPLATE_INCLUDE = Path(__file__).resolve().parents[2] / "kernel_templates" / "include"
ORDERS = ("forward", "reverse", "seeded:1", "seeded:2")


def prepared(cache_folder: Path) -> EmulatorBuild:
    build = EmulatorBuild(cache_folder, include_dirs=(TEMPLATE_INCLUDE,))
    build.prepare()
    return build


class Kernel:
    """Run a kernel text with entry `k` on named arrays; returns outputs in their own types."""

    def __init__(
        self,
        emulator: EmulatorBuild,
        text: str,
        *,
        flavour: str = "plain",
        is_examined: bool = True,
    ) -> None:
        """Without `is_examined`, host code is let through: for tests of the sandbox."""
        self.emulator = emulator
        module = emulator.build_module(
            f'#line 1 "test.cu"\n{text}',
            ("k",),
            flavour=flavour,
            deadline_s=60,
            is_examined=is_examined,
        )
        assert isinstance(module, Module), module.log
        self.module = module

    def job(
        self,
        inputs: dict[str, np.ndarray],
        outputs: dict[str, np.ndarray],
        scalars=(),
        *,
        grid=1,
        block=32,
        smem=0,
        sample=(),
        name="run",
        **options,
    ) -> Run:
        buffers = tuple(Buffer(key, "input", raw(value)) for key, value in inputs.items())
        buffers += tuple(Buffer(key, "output", raw(value)) for key, value in outputs.items())
        arguments = tuple(PointerArgument(buffer.name) for buffer in buffers)
        arguments += tuple(
            scalar if not isinstance(scalar, int) else ScalarArgument("int32", scalar)
            for scalar in scalars
        )
        launch = Launch("k", (grid, 1, 1), (block, 1, 1), smem, sample=sample)
        return Run(name, (launch,), buffers, arguments, **options)

    def run(self, *runs: Run, workers: int = 2, deadline_s: float = 20.0) -> tuple[RunResult, ...]:
        return execute(
            self.emulator,
            self.module,
            runs,
            workers=workers,
            deadline_s=deadline_s,
            memory_bytes=2**31,
        )

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
    // Tiles narrower than 16 leave gaps: wmma's pointers must be 32-byte aligned.
    const int row = blockIdx.x * %(step_m)d;
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
    return WMMA_GEMM % {
        "dtype": dtype,
        "m": m,
        "n": n,
        "step_m": step_m,
        "step_n": step_n,
        "layout_a": "row_major" if a_rows else "col_major",
        "layout_b": "row_major" if b_rows else "col_major",
        "at_a": "a + row * K + k0" if a_rows else f"a + k0 * (gridDim.x * {step_m}) + row",
        "ld_a": "K" if a_rows else f"gridDim.x * {step_m}",
        "at_b": "b + k0 * N + column" if b_rows else "b + column * K + k0",
        "ld_b": "N" if b_rows else "K",
    }


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


def only_right(results):
    for result in results:
        assert result.status == "finished" and not result.findings, (
            result.name,
            result.faults,
            result.findings,
        )
