"""Tensor cores: what each lane of a fragment holds, ldmatrix and stmatrix, products."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bench.correctness.conformance.case import Case, blank

# What each lane of a wmma fragment holds.

WMMA_MAP = """
#include <mma.h>
#include <cuda_bf16.h>
using namespace nvcuda::wmma;
using T = %(type)s;
using Word = %(word)s;
template <class Fragment>
__device__ void keep(Fragment& tile, Word* map) {
    for (int i = 0; i < %(room)d; i++)
        map[threadIdx.x * %(room)d + i] =
            i < tile.num_elements ? reinterpret_cast<Word*>(tile.x)[i] : Word(0xffff);
}
template <class Use, class Layout>
__device__ void operand(const Word* matrix, int leading, Word* map) {
    fragment<Use, %(m)d, %(n)d, %(k)d, T, Layout> tile;
    load_matrix_sync(tile, reinterpret_cast<const %(stored)s*>(matrix), leading);
    keep(tile, map);
}
extern "C" __global__ void k(const Word* matrix, Word* a_row, Word* a_col, Word* b_row,
                             Word* b_col) {
    operand<matrix_a, row_major>(matrix, %(k)d, a_row);
    operand<matrix_a, col_major>(matrix, %(m)d, a_col);
    operand<matrix_b, row_major>(matrix, %(n)d, b_row);
    operand<matrix_b, col_major>(matrix, %(k)d, b_col);
}
"""

WMMA_ACCUMULATOR_MAP = """
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const float* matrix, const unsigned short* halves, float* row,
                             float* col,
                             unsigned short* half_row, float* stored) {
    fragment<accumulator, %(m)d, %(n)d, %(k)d, float> tile;
    constexpr int count = %(m)d * %(n)d / 32;
    load_matrix_sync(tile, matrix, %(n)d, mem_row_major);
    for (int i = 0; i < count; i++) row[threadIdx.x * count + i] = tile.x[i];
    store_matrix_sync(stored, tile, %(m)d, mem_col_major);
    load_matrix_sync(tile, matrix, %(m)d, mem_col_major);
    for (int i = 0; i < count; i++) col[threadIdx.x * count + i] = tile.x[i];
#if %(k)d == 16
    fragment<accumulator, %(m)d, %(n)d, %(k)d, __half> half_tile;
    load_matrix_sync(half_tile, reinterpret_cast<const __half*>(halves), %(n)d, mem_row_major);
    for (int i = 0; i < count; i++)
        half_row[threadIdx.x * count + i] = reinterpret_cast<unsigned short*>(half_tile.x)[i];
#endif
}
"""

WMMA_SHAPES = ((16, 16, 16), (32, 8, 16), (8, 32, 16))


def wmma_maps() -> Iterator[Case]:
    for m, n, k in WMMA_SHAPES:
        for kind in ("__half", "__nv_bfloat16"):
            names = {
                "type": kind,
                "word": "unsigned short",
                "stored": "T",
                "m": m,
                "n": n,
                "k": k,
                "room": 16,
            }
            yield Case(
                f"wmma map {kind.strip('_')} m{m}n{n}k{k}",
                WMMA_MAP % names,
                {"matrix": np.arange(512, dtype=np.uint16)},
                {name: blank(np.uint16, 32, 16) for name in ("a_row", "a_col", "b_row", "b_col")},
            )
        yield accumulator_map(m, n, k)
    names = {
        "type": "precision::tf32",
        "word": "unsigned",
        "stored": "float",
        "m": 16,
        "n": 16,
        "k": 8,
        "room": 4,
    }
    yield Case(
        "wmma map tf32 m16n16k8",
        WMMA_MAP % names,
        {"matrix": np.arange(1, 129, dtype=np.float32)},
        {name: blank(np.uint32, 32, 4) for name in ("a_row", "a_col", "b_row", "b_col")},
    )
    yield accumulator_map(16, 16, 8)


def accumulator_map(m: int, n: int, k: int) -> Case:
    count = m * n // 32
    return Case(
        f"wmma map accumulator m{m}n{n}k{k}",
        WMMA_ACCUMULATOR_MAP % {"m": m, "n": n, "k": k},
        {"matrix": np.arange(256, dtype=np.float32), "halves": np.arange(256, dtype=np.uint16)},
        {
            "row": blank(np.float32, 32, count),
            "col": blank(np.float32, 32, count),
            "half_row": blank(np.uint16, 32, count),
            "stored": blank(np.float32, 256),
        },
    )


# Matrices to and from shared memory.

LDMATRIX = """
#include "gf/ldmatrix.cuh"
template <int count, bool transposed>
__device__ void load(const unsigned short* row, unsigned* out) {
    unsigned registers[count];
    if constexpr (transposed) gf::ldmatrix_transposed(registers, row);
    else gf::ldmatrix(registers, row);
    for (int m = 0; m < count; m++) out[threadIdx.x * count + m] = registers[m];
}
extern "C" __global__ void k(const unsigned short* matrix, unsigned* x1, unsigned* x2, unsigned* x4,
                             unsigned* x1t, unsigned* x2t, unsigned* x4t) {
    __shared__ __align__(128) unsigned short tile[32 * 8];
    for (int i = threadIdx.x; i < 256; i += 32) tile[i] = matrix[i];
    __syncthreads();
    const unsigned short* row = tile + threadIdx.x * 8;
    load<1, false>(row, x1);
    load<2, false>(row, x2);
    load<4, false>(row, x4);
    load<1, true>(row, x1t);
    load<2, true>(row, x2t);
    load<4, true>(row, x4t);
}
"""

STMATRIX = """
#include "gf/stmatrix.cuh"
template <int count, bool transposed>
__device__ void store(unsigned short* tile, const unsigned* in, unsigned short* out) {
    for (int i = threadIdx.x; i < 256; i += 32) tile[i] = 0xbeef;
    __syncthreads();
    unsigned registers[count];
    for (int m = 0; m < count; m++) registers[m] = in[threadIdx.x * 4 + m];
    unsigned short* row = tile + threadIdx.x * 8;
    if constexpr (transposed) gf::stmatrix_transposed(row, registers);
    else gf::stmatrix(row, registers);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += 32) out[i] = tile[i];
    __syncthreads();
}
extern "C" __global__ void k(const unsigned* in, unsigned short* x1, unsigned short* x2,
                             unsigned short* x4,
                             unsigned short* x1t, unsigned short* x2t, unsigned short* x4t) {
    __shared__ __align__(128) unsigned short tile[32 * 8];
    store<1, false>(tile, in, x1);
    store<2, false>(tile, in, x2);
    store<4, false>(tile, in, x4);
    store<1, true>(tile, in, x1t);
    store<2, true>(tile, in, x2t);
    store<4, true>(tile, in, x4t);
}
"""


def matrix_moves() -> Iterator[Case]:
    yield Case(
        "ldmatrix",
        LDMATRIX,
        {"matrix": np.arange(256, dtype=np.uint16)},
        {
            f"x{count}{turned}": blank(np.uint32, 32, count)
            for turned in ("", "t")
            for count in (1, 2, 4)
        },
    )
    yield Case(
        "stmatrix",
        STMATRIX,
        {"registers": np.arange(256, dtype=np.uint16).view(np.uint32).reshape(32, 4)},
        {f"x{count}{turned}": blank(np.uint16, 256) for turned in ("", "t") for count in (1, 2, 4)},
        architecture=90,
    )


# Products: operands are small integers, so that every order of summation gives the same sum.

MMA = """
#include "gf/mma.cuh"
%(include)s
extern "C" __global__ void k(const unsigned* a, const unsigned* b, const float* c, float* d) {
    const unsigned lane = threadIdx.x;
    unsigned a_registers[4];
    float sum[4];
    for (int i = 0; i < 4; i++) a_registers[i] = a[lane * 4 + i];
    for (int i = 0; i < 4; i++) sum[i] = c[lane * 4 + i];
    gf::%(call)s(sum, a_registers, b[lane * 2], b[lane * 2 + 1]);
    for (int i = 0; i < 4; i++) d[lane * 4 + i] = sum[i];
}
"""

WMMA_TF32 = """
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const float* a, const float* b, float* d) {
    fragment<matrix_a, 16, 16, 8, precision::tf32, row_major> tile_a;
    fragment<matrix_b, 16, 16, 8, precision::tf32, col_major> tile_b;
    fragment<accumulator, 16, 16, 8, float> sum;
    fill_fragment(sum, 1.0f);
    load_matrix_sync(tile_a, a, 8);
    load_matrix_sync(tile_b, b, 8);
    for (int i = 0; i < tile_a.num_elements; i++) tile_a.x[i] = __float_to_tf32(tile_a.x[i]);
    for (int i = 0; i < tile_b.num_elements; i++) tile_b.x[i] = __float_to_tf32(tile_b.x[i]);
    mma_sync(sum, tile_a, tile_b, sum);
    store_matrix_sync(d, sum, 16, mem_row_major);
}
"""

# Codes of -8 ... 8 as each format writes them.
E4M3_INTEGERS = np.array(
    [
        0xD0,
        0xCE,
        0xCC,
        0xCA,
        0xC8,
        0xC4,
        0xC0,
        0xB8,
        0,
        0x38,
        0x40,
        0x44,
        0x48,
        0x4A,
        0x4C,
        0x4E,
        0x50,
    ],
    np.uint8,
)
E5M2_INTEGERS = np.array(
    [
        0xC8,
        0xC6,
        0xC6,
        0xC4,
        0xC4,
        0xC2,
        0xC0,
        0xBC,
        0,
        0x3C,
        0x40,
        0x42,
        0x44,
        0x44,
        0x46,
        0x46,
        0x48,
    ],
    np.uint8,
)


def products() -> Iterator[Case]:
    random = np.random.default_rng(7)
    sums = random.integers(-50, 51, (32, 4)).astype(np.float32)

    def case(
        name: str, include: str, call: str, a: np.ndarray, b: np.ndarray, architecture: int = 80
    ) -> Case:
        return Case(
            f"mma {name}",
            MMA % {"include": include, "call": call},
            {
                "a": a.view(np.uint32).reshape(32, 4),
                "b": b.view(np.uint32).reshape(32, 2),
                "c": sums,
            },
            {"d": blank(np.float32, 32, 4)},
            architecture=architecture,
        )

    a, b = (random.integers(-8, 9, (32, count)).astype(np.float32) for count in (8, 4))
    yield case(
        "m16n8k16 f16", "", "mma_m16n8k16<__half>", a.astype(np.float16), b.astype(np.float16)
    )
    yield case("m16n8k16 bf16", "", "mma_m16n8k16<__nv_bfloat16>", bfloat16(a), bfloat16(b))
    a, b = (random.uniform(-8, 8, (32, count)).astype(np.float32) for count in (4, 2))
    truncated = [(np.round(fragment * 4) / 4).astype(np.float32) for fragment in (a, b)]
    yield case("m16n8k8 tf32", '#include "gf/mma_tf32.cuh"', "mma_m16n8k8_tf32", *truncated)
    # Low bits that the unit must not see.
    noisy = [(fragment.view(np.uint32) | 0x1FFF).view(np.float32) for fragment in truncated]
    yield case(
        "m16n8k8 tf32, low bits set", '#include "gf/mma_tf32.cuh"', "mma_m16n8k8_tf32", *noisy
    )
    integers = {"e4m3": E4M3_INTEGERS, "e5m2": E5M2_INTEGERS}
    for integer in integers:
        for other in integers:
            yield case(
                f"m16n8k32 {integer} {other}",
                '#include "gf/mma_fp8.cuh"',
                f"mma_m16n8k32<__nv_fp8_{integer}, __nv_fp8_{other}>",
                random.choice(integers[integer], (32, 16)),
                random.choice(integers[other], (32, 8)),
                89,
            )
    tiles = [(random.integers(-40, 41, 128) / 4).astype(np.float32) for _ in range(2)]
    yield Case(
        "wmma tf32", WMMA_TF32, {"a": tiles[0], "b": tiles[1]}, {"d": blank(np.float32, 256)}
    )


def bfloat16(values: np.ndarray) -> np.ndarray:
    """Bit patterns of values that bfloat16 holds exactly."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)
