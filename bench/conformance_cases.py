"""Small kernels that show what one primitive does, bit by bit: the same text runs on the emulator and on a GPU.

Each kernel is `extern "C" __global__ void k(inputs..., outputs...)`, pointers only, in the order given. Only NumPy is
needed to make the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

Index3 = tuple[int, int, int]


@dataclass(frozen=True)
class Case:
    name: str
    source: str
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]  # of the right type and size; the content does not matter
    grid: Index3 = (1, 1, 1)
    block: Index3 = (32, 1, 1)
    cluster: Index3 = (1, 1, 1)
    smem_dynamic_bytes: int = 0
    architecture: int = 80  # the first sm_ that has it
    # Bounds that hold instead of equality: |a - b| <= relative |b| + absolute, by output.
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)


def blank(dtype, *shape: int) -> np.ndarray:
    return np.zeros(shape, dtype)


def cases() -> Iterator[Case]:
    yield from wmma_maps()
    yield from matrix_moves()
    yield from products()
    yield from float8_conversions()
    yield from float16_conversions()
    yield from register_conversions()
    yield async_copies()
    yield from warp_collectives()
    yield barrier_votes()
    yield half_atomics()
    yield from clusters()
    yield approximations()


# --- what each lane of a wmma fragment holds ---

WMMA_MAP = """
#include <mma.h>
#include <cuda_bf16.h>
using namespace nvcuda::wmma;
using T = %(type)s;
using Word = %(word)s;
template <class Fragment>
__device__ void keep(Fragment& tile, Word* map) {
    for (int i = 0; i < %(room)d; i++)
        map[threadIdx.x * %(room)d + i] = i < tile.num_elements ? reinterpret_cast<Word*>(tile.x)[i] : Word(0xffff);
}
template <class Use, class Layout>
__device__ void operand(const Word* matrix, int leading, Word* map) {
    fragment<Use, %(m)d, %(n)d, %(k)d, T, Layout> tile;
    load_matrix_sync(tile, reinterpret_cast<const %(stored)s*>(matrix), leading);
    keep(tile, map);
}
extern "C" __global__ void k(const Word* matrix, Word* a_row, Word* a_col, Word* b_row, Word* b_col) {
    operand<matrix_a, row_major>(matrix, %(k)d, a_row);
    operand<matrix_a, col_major>(matrix, %(m)d, a_col);
    operand<matrix_b, row_major>(matrix, %(n)d, b_row);
    operand<matrix_b, col_major>(matrix, %(k)d, b_col);
}
"""

WMMA_ACCUMULATOR_MAP = """
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const float* matrix, const unsigned short* halves, float* row, float* col,
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
            names = {"type": kind, "word": "unsigned short", "stored": "T", "m": m, "n": n, "k": k, "room": 16}
            yield Case(f"wmma map {kind.strip('_')} m{m}n{n}k{k}", WMMA_MAP % names,
                       {"matrix": np.arange(512, dtype=np.uint16)},
                       {name: blank(np.uint16, 32, 16) for name in ("a_row", "a_col", "b_row", "b_col")})
        yield accumulator_map(m, n, k)
    names = {"type": "precision::tf32", "word": "unsigned", "stored": "float", "m": 16, "n": 16, "k": 8, "room": 4}
    yield Case("wmma map tf32 m16n16k8", WMMA_MAP % names, {"matrix": np.arange(1, 129, dtype=np.float32)},
               {name: blank(np.uint32, 32, 4) for name in ("a_row", "a_col", "b_row", "b_col")})
    yield accumulator_map(16, 16, 8)


def accumulator_map(m: int, n: int, k: int) -> Case:
    count = m * n // 32
    return Case(f"wmma map accumulator m{m}n{n}k{k}", WMMA_ACCUMULATOR_MAP % {"m": m, "n": n, "k": k},
                {"matrix": np.arange(256, dtype=np.float32), "halves": np.arange(256, dtype=np.uint16)},
                {"row": blank(np.float32, 32, count), "col": blank(np.float32, 32, count),
                 "half_row": blank(np.uint16, 32, count), "stored": blank(np.float32, 256)})


# --- ldmatrix, stmatrix ---

LDMATRIX = """
#include "gf/ldmatrix.cuh"
template <int count, bool transposed>
__device__ void load(const unsigned short* row, unsigned* out) {
    unsigned registers[count];
    if constexpr (transposed) gf::ldmatrix_transposed(registers, row); else gf::ldmatrix(registers, row);
    for (int m = 0; m < count; m++) out[threadIdx.x * count + m] = registers[m];
}
extern "C" __global__ void k(const unsigned short* matrix, unsigned* x1, unsigned* x2, unsigned* x4, unsigned* x1t,
                             unsigned* x2t, unsigned* x4t) {
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
    if constexpr (transposed) gf::stmatrix_transposed(row, registers); else gf::stmatrix(row, registers);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += 32) out[i] = tile[i];
    __syncthreads();
}
extern "C" __global__ void k(const unsigned* in, unsigned short* x1, unsigned short* x2, unsigned short* x4,
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
    yield Case("ldmatrix", LDMATRIX, {"matrix": np.arange(256, dtype=np.uint16)},
               {f"x{count}{turned}": blank(np.uint32, 32, count) for turned in ("", "t") for count in (1, 2, 4)})
    yield Case("stmatrix", STMATRIX, {"registers": np.arange(256, dtype=np.uint16).view(np.uint32).reshape(32, 4)},
               {f"x{count}{turned}": blank(np.uint16, 256) for turned in ("", "t") for count in (1, 2, 4)},
               architecture=90)


# --- mma: operands are small integers, so that every order of summation gives the same sum ---

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
E4M3_INTEGERS = np.array([0xd0, 0xce, 0xcc, 0xca, 0xc8, 0xc4, 0xc0, 0xb8, 0, 0x38, 0x40, 0x44, 0x48, 0x4a, 0x4c, 0x4e,
                          0x50], np.uint8)
E5M2_INTEGERS = np.array([0xc8, 0xc6, 0xc6, 0xc4, 0xc4, 0xc2, 0xc0, 0xbc, 0, 0x3c, 0x40, 0x42, 0x44, 0x44, 0x46, 0x46,
                          0x48], np.uint8)


def products() -> Iterator[Case]:
    random = np.random.default_rng(7)
    sums = random.integers(-50, 51, (32, 4)).astype(np.float32)

    def case(name: str, include: str, call: str, a: np.ndarray, b: np.ndarray, architecture: int = 80) -> Case:
        return Case(f"mma {name}", MMA % {"include": include, "call": call},
                    {"a": a.view(np.uint32).reshape(32, 4), "b": b.view(np.uint32).reshape(32, 2), "c": sums},
                    {"d": blank(np.float32, 32, 4)}, architecture=architecture)

    a, b = (random.integers(-8, 9, (32, count)).astype(np.float32) for count in (8, 4))
    yield case("m16n8k16 f16", "", "mma_m16n8k16<__half>", a.astype(np.float16), b.astype(np.float16))
    yield case("m16n8k16 bf16", "", "mma_m16n8k16<__nv_bfloat16>", bfloat16(a), bfloat16(b))
    a, b = (random.uniform(-8, 8, (32, count)).astype(np.float32) for count in (4, 2))
    truncated = [(np.round(one * 4) / 4).astype(np.float32) for one in (a, b)]
    yield case("m16n8k8 tf32", '#include "gf/mma_tf32.cuh"', "mma_m16n8k8_tf32", *truncated)
    # Low bits that the unit must not see.
    noisy = [(one.view(np.uint32) | 0x1fff).view(np.float32) for one in truncated]
    yield case("m16n8k8 tf32, low bits set", '#include "gf/mma_tf32.cuh"', "mma_m16n8k8_tf32", *noisy)
    integers = {"e4m3": E4M3_INTEGERS, "e5m2": E5M2_INTEGERS}
    for one in integers:
        for other in integers:
            yield case(f"m16n8k32 {one} {other}", '#include "gf/mma_fp8.cuh"',
                       f"mma_m16n8k32<__nv_fp8_{one}, __nv_fp8_{other}>",
                       random.choice(integers[one], (32, 16)), random.choice(integers[other], (32, 8)), 89)
    tiles = [(random.integers(-40, 41, 128) / 4).astype(np.float32) for _ in range(2)]
    yield Case("wmma tf32", WMMA_TF32, {"a": tiles[0], "b": tiles[1]}, {"d": blank(np.float32, 256)})


def bfloat16(values: np.ndarray) -> np.ndarray:
    """Bit patterns of values that bfloat16 holds exactly."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


# --- fp8 ---

FROM_FLOAT8 = """
#include <cuda_fp8.h>
extern "C" __global__ void k(const unsigned char* codes, float* e4m3, float* e5m2, unsigned short* half_e4m3,
                             unsigned short* half_e5m2, float* pair, float* four) {
    const int i = threadIdx.x;
    __nv_fp8_e4m3 first;
    __nv_fp8_e5m2 second;
    first.__x = second.__x = codes[i];
    e4m3[i] = float(first);
    e5m2[i] = float(second);
    half_e4m3[i] = __nv_cvt_fp8_to_halfraw(codes[i], __NV_E4M3).x;
    half_e5m2[i] = __nv_cvt_fp8_to_halfraw(codes[i], __NV_E5M2).x;
    if (i % 2 == 0) {
        __nv_fp8x2_e4m3 two;
        two.__x = codes[i] | codes[i + 1] << 8;
        const float2 values = float2(two);
        pair[i] = values.x;
        pair[i + 1] = values.y;
    }
    if (i % 4 == 0) {
        __nv_fp8x4_e5m2 all;
        all.__x = codes[i] | codes[i + 1] << 8 | codes[i + 2] << 16 | unsigned(codes[i + 3]) << 24;
        const float4 values = float4(all);
        four[i] = values.x;
        four[i + 1] = values.y;
        four[i + 2] = values.z;
        four[i + 3] = values.w;
    }
}
"""

TO_FLOAT8 = """
#include <cuda_fp8.h>
#include "gf/fp8.cuh"
extern "C" __global__ void k(const float* x, unsigned char* e4m3, unsigned char* e4m3_open, unsigned char* e5m2,
                             unsigned char* e5m2_open, unsigned short* pair, unsigned short* pair_open,
                             unsigned char* of_type, unsigned* four) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    e4m3[i] = __nv_cvt_float_to_fp8(x[i], __NV_SATFINITE, __NV_E4M3);
    e4m3_open[i] = __nv_cvt_float_to_fp8(x[i], __NV_NOSAT, __NV_E4M3);
    e5m2[i] = __nv_cvt_float_to_fp8(x[i], __NV_SATFINITE, __NV_E5M2);
    e5m2_open[i] = __nv_cvt_float_to_fp8(x[i], __NV_NOSAT, __NV_E5M2);
    const float2 both = make_float2(x[i], x[i ^ 1]);
    pair[i] = __nv_cvt_float2_to_fp8x2(both, __NV_SATFINITE, __NV_E4M3);
    pair_open[i] = __nv_cvt_float2_to_fp8x2(both, __NV_NOSAT, __NV_E5M2);
    of_type[i] = gf::from_float<__nv_fp8_e5m2>(x[i]).__x;
    four[i] = gf::pack_fp8x4<__nv_fp8_e4m3>(x[i], x[i ^ 1], x[i ^ 2], x[i ^ 3]);
}
"""

FLOAT16_TO_FLOAT8 = """
#include <cuda_fp8.h>
extern "C" __global__ void k(const unsigned short* bits, unsigned char* e4m3, unsigned char* e4m3_open,
                             unsigned char* e5m2, unsigned char* e5m2_open, unsigned char* bf_e4m3,
                             unsigned char* bf_e5m2_open, unsigned short* pair) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    __half_raw half;
    half.x = bits[i];
    __nv_bfloat16_raw bfloat;
    bfloat.x = bits[i];
    e4m3[i] = __nv_cvt_halfraw_to_fp8(half, __NV_SATFINITE, __NV_E4M3);
    e4m3_open[i] = __nv_cvt_halfraw_to_fp8(half, __NV_NOSAT, __NV_E4M3);
    e5m2[i] = __nv_cvt_halfraw_to_fp8(half, __NV_SATFINITE, __NV_E5M2);
    e5m2_open[i] = __nv_cvt_halfraw_to_fp8(half, __NV_NOSAT, __NV_E5M2);
    bf_e4m3[i] = __nv_cvt_bfloat16raw_to_fp8(bfloat, __NV_SATFINITE, __NV_E4M3);
    bf_e5m2_open[i] = __nv_cvt_bfloat16raw_to_fp8(bfloat, __NV_NOSAT, __NV_E5M2);
    __half2_raw two;
    two.x = bits[i];
    two.y = bits[i ^ 1];
    pair[i] = __nv_cvt_halfraw2_to_fp8x2(two, __NV_SATFINITE, __NV_E5M2);
}
"""


def float8_conversions() -> Iterator[Case]:
    yield Case("fp8 codes to float and half", FROM_FLOAT8, {"codes": np.arange(256, dtype=np.uint8)},
               {"e4m3": blank(np.float32, 256), "e5m2": blank(np.float32, 256), "half_e4m3": blank(np.uint16, 256),
                "half_e5m2": blank(np.uint16, 256), "pair": blank(np.float32, 256), "four": blank(np.float32, 256)},
               block=(256, 1, 1))
    x = float_sample(np.float32)
    outputs = {name: blank(np.uint8, x.size) for name in ("e4m3", "e4m3_open", "e5m2", "e5m2_open")}
    outputs |= {"pair": blank(np.uint16, x.size), "pair_open": blank(np.uint16, x.size),
                "of_type": blank(np.uint8, x.size), "four": blank(np.uint32, x.size)}
    yield Case("float to fp8", TO_FLOAT8, {"x": x}, outputs, grid=(x.size // 256, 1, 1), block=(256, 1, 1))
    names = ("e4m3", "e4m3_open", "e5m2", "e5m2_open", "bf_e4m3", "bf_e5m2_open")
    yield Case("half and bfloat16 to fp8", FLOAT16_TO_FLOAT8, {"bits": np.arange(65536, dtype=np.uint16)},
               {name: blank(np.uint8, 65536) for name in names} | {"pair": blank(np.uint16, 65536)},
               grid=(256, 1, 1), block=(256, 1, 1))


def float_sample(dtype) -> np.ndarray:
    """Every value near which a narrow format rounds, its neighbours, and random bit patterns; a multiple of 256."""
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)[::16]
    bfloats = (np.arange(65536, dtype=np.uint32)[::16] << 16).view(np.float32)
    small = np.concatenate([np.arange(1, 128) * 2.0 ** exponent for exponent in range(-20, 12)]).astype(np.float32)
    marks = np.concatenate([halves, bfloats, small, -small])
    near = np.concatenate([marks.view(np.uint32), marks.view(np.uint32) + 1, marks.view(np.uint32) - 1])
    special = np.array([0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0xffffffff, 0x7fffffff, 0, 1 << 31,
                        1, 0x7f7fffff, 0x477fe000, 0x477fefff, 0x477ff000, 0x43e00000, 0x43e80000, 0x43e80001,
                        0x47600000, 0x476fffff, 0x47700000], np.uint32)
    random = np.random.default_rng(8).integers(0, 2**32, 4096, dtype=np.uint32)
    bits = np.concatenate([near, special, special ^ np.uint32(1 << 31), random])
    return np.resize(bits, -(-bits.size // 256) * 256).view(dtype)


# --- half, bfloat16, tf32, packed registers ---

FROM_FLOAT16 = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void k(const unsigned short* bits, float* half, float* bfloat, unsigned short* there_and_back) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    half[i] = __half2float(__ushort_as_half(bits[i]));
    bfloat[i] = __bfloat162float(__ushort_as_bfloat16(bits[i]));
    there_and_back[i] = __half_as_ushort(__float2half_rn(half[i]));
}
"""

TO_FLOAT16 = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void k(const float* x, unsigned short* half, unsigned short* bfloat, unsigned short* from_double) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    half[i] = __half_as_ushort(__float2half_rn(x[i]));
    bfloat[i] = __bfloat16_as_ushort(__float2bfloat16_rn(x[i]));
    from_double[i] = __half_as_ushort(__double2half(double(x[i]) * 1.0000001));
}
"""

HALF_ARITHMETIC = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <class T, class Pair>
__device__ void all(T a, T b, T c, T* out) {
    out[0] = __hadd(a, b);
    out[1] = __hsub(a, b);
    out[2] = __hmul(a, b);
    out[3] = __hfma(a, b, c);
    out[4] = __hmax(a, b);
    out[5] = __hmin(a, b);
    out[6] = __hneg(a);
    out[7] = __habs(a);
}
extern "C" __global__ void k(const unsigned short* bits, unsigned short* half, unsigned short* bfloat) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, count = gridDim.x * blockDim.x;
    const unsigned short a = bits[i], b = bits[count + i], c = bits[2 * count + i];
    __half of_half[8];
    all<__half, __half2>(__ushort_as_half(a), __ushort_as_half(b), __ushort_as_half(c), of_half);
    for (int j = 0; j < 8; j++) half[i * 8 + j] = __half_as_ushort(of_half[j]);
    __nv_bfloat16 of_bfloat[8];
    all<__nv_bfloat16, __nv_bfloat162>(__ushort_as_bfloat16(a), __ushort_as_bfloat16(b), __ushort_as_bfloat16(c),
                                       of_bfloat);
    for (int j = 0; j < 8; j++) bfloat[i * 8 + j] = __bfloat16_as_ushort(of_bfloat[j]);
}
"""

REGISTERS = """
#include "gf/convert.cuh"
extern "C" __global__ void k(const float* x, unsigned* tf32, unsigned* half2, unsigned* bfloat2, unsigned* half2_relu,
                             unsigned* bfloat2_relu, float* unpacked) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float low = x[i], high = x[i ^ 1];
    tf32[i] = gf::to_tf32(low);
    half2[i] = gf::pack_half2(low, high);
    bfloat2[i] = gf::pack_bfloat162(low, high);
    half2_relu[i] = gf::pack_half2_relu(low, high);
    bfloat2_relu[i] = gf::pack_bfloat162_relu(low, high);
    const float2 halves = gf::unpack_half2(half2[i]), bfloats = gf::unpack_bfloat162(bfloat2[i]);
    unpacked[4 * i] = halves.x;
    unpacked[4 * i + 1] = halves.y;
    unpacked[4 * i + 2] = bfloats.x;
    unpacked[4 * i + 3] = bfloats.y;
}
"""


def float16_conversions() -> Iterator[Case]:
    yield Case("half and bfloat16 to float", FROM_FLOAT16, {"bits": np.arange(65536, dtype=np.uint16)},
               {"half": blank(np.float32, 65536), "bfloat": blank(np.float32, 65536),
                "there_and_back": blank(np.uint16, 65536)}, grid=(256, 1, 1), block=(256, 1, 1))
    x = float_sample(np.float32)
    yield Case("float to half and bfloat16", TO_FLOAT16, {"x": x},
               {name: blank(np.uint16, x.size) for name in ("half", "bfloat", "from_double")},
               grid=(x.size // 256, 1, 1), block=(256, 1, 1))
    bits = np.random.default_rng(9).integers(0, 65536, 3 * 4096).astype(np.uint16)
    yield Case("half and bfloat16 arithmetic", HALF_ARITHMETIC, {"bits": bits},
               {"half": blank(np.uint16, 4096, 8), "bfloat": blank(np.uint16, 4096, 8)},
               grid=(16, 1, 1), block=(256, 1, 1))


def register_conversions() -> Iterator[Case]:
    x = float_sample(np.float32)
    names = ("tf32", "half2", "bfloat2", "half2_relu", "bfloat2_relu")
    yield Case("float to tf32 and packed registers", REGISTERS, {"x": x},
               {name: blank(np.uint32, x.size) for name in names} | {"unpacked": blank(np.float32, x.size, 4)},
               grid=(x.size // 256, 1, 1), block=(256, 1, 1))


# --- asynchronous copies, collectives, barriers, atomics ---

ASYNC_COPY = """
#include "gf/async_copy.cuh"
template <int bytes>
__device__ void copy(const unsigned char* source, unsigned char* tile, unsigned char* out) {
    gf::async_copy<bytes>(tile + threadIdx.x * 16, source + threadIdx.x * 16, int(threadIdx.x) % (bytes + 1));
    gf::async_copy_commit();
    gf::async_copy_wait<0>();
    for (int i = 0; i < bytes; i++) out[threadIdx.x * bytes + i] = tile[threadIdx.x * 16 + i];
}
extern "C" __global__ void k(const unsigned char* source, unsigned char* of4, unsigned char* of8, unsigned char* of16) {
    __shared__ __align__(16) unsigned char tile[32 * 16];
    copy<4>(source, tile, of4);
    copy<8>(source, tile, of8);
    copy<16>(source, tile, of16);
}
"""

SHUFFLES = """
extern "C" __global__ void k(const int* x, int* index, int* up, int* down, int* exchanged, unsigned* votes) {
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
extern "C" __global__ void k(const int* x, unsigned* half_sum, unsigned* bfloat_sum, unsigned short* one) {
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
    return Case("cp.async with zero fill", ASYNC_COPY, {"source": np.arange(1, 513, dtype=np.uint16).astype(np.uint8)},
                {f"of{size}": blank(np.uint8, 32, size) for size in (4, 8, 16)})


def warp_collectives() -> Iterator[Case]:
    x = np.random.default_rng(10).integers(-99, 100, 32).astype(np.int32)
    rows = 6 * 14
    yield Case("shuffles and votes", SHUFFLES, {"x": x},
               {name: blank(np.int32, rows, 32) for name in ("index", "up", "down", "exchanged")}
               | {"votes": blank(np.uint32, 32, 4)})
    yield Case("warp reductions", REDUCTIONS, {"x": x},
               {"whole": blank(np.int32, 32, 3), "unsigned_whole": blank(np.uint32, 32, 6), "part": blank(np.int32, 32)})


def barrier_votes() -> Case:
    return Case("__syncthreads with a vote", BARRIER_VOTES, {"x": np.arange(96, dtype=np.int32)},
                {"out": blank(np.int32, 96, 3)}, block=(96, 1, 1))


def half_atomics() -> Case:
    return Case("16-bit atomics", HALF_ATOMICS, {"x": (np.arange(64) % 5 - 2).astype(np.int32)},
                {"half_sum": blank(np.uint32, 1), "bfloat_sum": blank(np.uint32, 1), "one": blank(np.uint16, 1)},
                block=(64, 1, 1))


# --- clusters ---

CLUSTER_IDS = """
#include "gf/cluster.cuh"
extern "C" __global__ void __cluster_dims__(2, 2, 1) k(unsigned* ids) {
    const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
    if (threadIdx.x) return;
    unsigned* out = ids + block * 12;
    out[0] = gf::cluster_rank();
    out[1] = gf::cluster_blocks();
    const uint3 size = gf::cluster_size(), place = gf::cluster_block_index(), cluster = gf::cluster_index();
    out[2] = size.x; out[3] = size.y; out[4] = size.z;
    out[5] = place.x; out[6] = place.y; out[7] = place.z;
    out[8] = cluster.x; out[9] = cluster.y; out[10] = cluster.z;
    out[11] = blockIdx.x;
}
"""

CLUSTER_MEMORY = """
#include "gf/cluster.cuh"
#include "gf/shared.cuh"
extern "C" __global__ void __cluster_dims__(4, 1, 1) k(const int* x, int* from_static, int* from_dynamic, int* histogram) {
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
    yield Case("cluster ids", CLUSTER_IDS, {}, {"ids": blank(np.uint32, 24, 12)}, grid=(6, 4, 1), cluster=(2, 2, 1),
               architecture=90)
    x = np.random.default_rng(11).integers(0, 1000, 8 * 64).astype(np.int32)
    yield Case("distributed shared memory", CLUSTER_MEMORY, {"x": x},
               {"from_static": blank(np.int32, 512), "from_dynamic": blank(np.int32, 512),
                "histogram": blank(np.int32, 64)},
               grid=(8, 1, 1), block=(64, 1, 1), cluster=(4, 1, 1), smem_dynamic_bytes=256, architecture=90)


# --- approximations: within PTX ISA's bounds of the emulator's exact values ---

APPROXIMATIONS = """
#include "gf/math.cuh"
extern "C" __global__ void k(const float* x, float* exp2, float* log2, float* reciprocal, float* rsqrt, float* sqrt,
                             float* tanh) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    exp2[i] = gf::exp2_approx(x[i]);
    log2[i] = gf::log2_approx(x[i]);
    reciprocal[i] = gf::reciprocal_approx(x[i]);
    rsqrt[i] = gf::rsqrt_approx(x[i]);
    sqrt[i] = gf::sqrt_approx(x[i]);
    tanh[i] = gf::tanh_approx(x[i]);
}
"""


def approximations() -> Case:
    random = np.random.default_rng(12)
    x = np.concatenate([random.uniform(-130, 130, 3000), random.uniform(-2, 2, 3000), 2.0 ** random.uniform(-126, 127, 2000),
                        [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0, 0.5, 1e-40, -1e-40, 3e38]])
    x = np.resize(x, 8192).astype(np.float32)
    # Two errors meet: the device's and, of the bound, the emulator's own rounding (half a unit in the last place).
    half_ulp = 2.0**-24
    return Case("approximations", APPROXIMATIONS, {"x": x},
                {name: blank(np.float32, x.size) for name in ("exp2", "log2", "reciprocal", "rsqrt", "sqrt", "tanh")},
                grid=(32, 1, 1), block=(256, 1, 1),
                bounds={"exp2": (2.0**-22 + half_ulp, 0.0), "log2": (2.0**-22 + half_ulp, 2.0**-22 + half_ulp),
                        "reciprocal": (2.0**-23 + half_ulp, 0.0), "rsqrt": (2.0**-22.9 + half_ulp, 0.0),
                        "sqrt": (2.0**-23 + half_ulp, 0.0), "tanh": (2.0**-11 + half_ulp, 0.0)})
