"""Narrow formats: conversions of every code, rounding, packed registers, approximations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bench.correctness.conformance.case import Case, blank

# Fp8 codes.

FROM_FLOAT8 = """
#include <cuda_fp8.h>
extern "C" __global__ void k(const unsigned char* codes, float* e4m3, float* e5m2,
                             unsigned short* half_e4m3,
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
extern "C" __global__ void k(const float* x, unsigned char* e4m3, unsigned char* e4m3_open,
                             unsigned char* e5m2, unsigned char* e5m2_open, unsigned short* pair,
                             unsigned short* pair_open, unsigned char* of_type, unsigned* four) {
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
extern "C" __global__ void k(const unsigned short* bits, unsigned char* e4m3,
                             unsigned char* e4m3_open,
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
    yield Case(
        "fp8 codes to float and half",
        FROM_FLOAT8,
        {"codes": np.arange(256, dtype=np.uint8)},
        {
            "e4m3": blank(np.float32, 256),
            "e5m2": blank(np.float32, 256),
            "half_e4m3": blank(np.uint16, 256),
            "half_e5m2": blank(np.uint16, 256),
            "pair": blank(np.float32, 256),
            "four": blank(np.float32, 256),
        },
        block=(256, 1, 1),
    )
    x = float_sample(np.float32)
    outputs = {name: blank(np.uint8, x.size) for name in ("e4m3", "e4m3_open", "e5m2", "e5m2_open")}
    outputs |= {
        "pair": blank(np.uint16, x.size),
        "pair_open": blank(np.uint16, x.size),
        "of_type": blank(np.uint8, x.size),
        "four": blank(np.uint32, x.size),
    }
    yield Case(
        "float to fp8", TO_FLOAT8, {"x": x}, outputs, grid=(x.size // 256, 1, 1), block=(256, 1, 1)
    )
    names = ("e4m3", "e4m3_open", "e5m2", "e5m2_open", "bf_e4m3", "bf_e5m2_open")
    yield Case(
        "half and bfloat16 to fp8",
        FLOAT16_TO_FLOAT8,
        {"bits": np.arange(65536, dtype=np.uint16)},
        {name: blank(np.uint8, 65536) for name in names} | {"pair": blank(np.uint16, 65536)},
        grid=(256, 1, 1),
        block=(256, 1, 1),
    )


def float_sample(dtype) -> np.ndarray:
    """Values around every rounding point of a narrow format, and random ones; a multiple of 256."""
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)[::16]
    bfloats = (np.arange(65536, dtype=np.uint32)[::16] << 16).view(np.float32)
    small = np.concatenate(
        [np.arange(1, 128) * 2.0**exponent for exponent in range(-20, 12)]
    ).astype(np.float32)
    marks = np.concatenate([halves, bfloats, small, -small])
    near = np.concatenate(
        [marks.view(np.uint32), marks.view(np.uint32) + 1, marks.view(np.uint32) - 1]
    )
    special = np.array(
        [
            0x7F800000,
            0xFF800000,
            0x7FC00000,
            0xFFC00000,
            0x7F800001,
            0xFFFFFFFF,
            0x7FFFFFFF,
            0,
            1 << 31,
            1,
            0x7F7FFFFF,
            0x477FE000,
            0x477FEFFF,
            0x477FF000,
            0x43E00000,
            0x43E80000,
            0x43E80001,
            0x47600000,
            0x476FFFFF,
            0x47700000,
        ],
        np.uint32,
    )
    random = np.random.default_rng(8).integers(0, 2**32, 4096, dtype=np.uint32)
    bits = np.concatenate([near, special, special ^ np.uint32(1 << 31), random])
    return np.resize(bits, -(-bits.size // 256) * 256).view(dtype)


# Half, bfloat16, tf32, packed registers.

FROM_FLOAT16 = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void k(const unsigned short* bits, float* half, float* bfloat,
                             unsigned short* there_and_back) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    half[i] = __half2float(__ushort_as_half(bits[i]));
    bfloat[i] = __bfloat162float(__ushort_as_bfloat16(bits[i]));
    there_and_back[i] = __half_as_ushort(__float2half_rn(half[i]));
}
"""

TO_FLOAT16 = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void k(const float* x, unsigned short* half, unsigned short* bfloat,
                             unsigned short* from_double) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    half[i] = __half_as_ushort(__float2half_rn(x[i]));
    bfloat[i] = __bfloat16_as_ushort(__float2bfloat16_rn(x[i]));
    from_double[i] = __half_as_ushort(__double2half(double(x[i]) * 1.0000001));
}
"""

HALF_ARITHMETIC = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <class T>
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
extern "C" __global__ void k(const unsigned short* bits, unsigned short* half,
                             unsigned short* bfloat) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, count = gridDim.x * blockDim.x;
    const unsigned short a = bits[i], b = bits[count + i], c = bits[2 * count + i];
    __half of_half[8];
    all(__ushort_as_half(a), __ushort_as_half(b), __ushort_as_half(c), of_half);
    for (int j = 0; j < 8; j++) half[i * 8 + j] = __half_as_ushort(of_half[j]);
    __nv_bfloat16 of_bfloat[8];
    all(__ushort_as_bfloat16(a), __ushort_as_bfloat16(b), __ushort_as_bfloat16(c), of_bfloat);
    for (int j = 0; j < 8; j++) bfloat[i * 8 + j] = __bfloat16_as_ushort(of_bfloat[j]);
}
"""

REGISTERS = """
#include "gf/convert.cuh"
extern "C" __global__ void k(const float* x, unsigned* tf32, unsigned* half2, unsigned* bfloat2,
                             unsigned* half2_relu, unsigned* bfloat2_relu, float* unpacked) {
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
    yield Case(
        "half and bfloat16 to float",
        FROM_FLOAT16,
        {"bits": np.arange(65536, dtype=np.uint16)},
        {
            "half": blank(np.float32, 65536),
            "bfloat": blank(np.float32, 65536),
            "there_and_back": blank(np.uint16, 65536),
        },
        grid=(256, 1, 1),
        block=(256, 1, 1),
    )
    x = float_sample(np.float32)
    yield Case(
        "float to half and bfloat16",
        TO_FLOAT16,
        {"x": x},
        {name: blank(np.uint16, x.size) for name in ("half", "bfloat", "from_double")},
        grid=(x.size // 256, 1, 1),
        block=(256, 1, 1),
    )
    bits = np.random.default_rng(9).integers(0, 65536, 3 * 4096).astype(np.uint16)
    yield Case(
        "half and bfloat16 arithmetic",
        HALF_ARITHMETIC,
        {"bits": bits},
        {"half": blank(np.uint16, 4096, 8), "bfloat": blank(np.uint16, 4096, 8)},
        grid=(16, 1, 1),
        block=(256, 1, 1),
    )


def register_conversions() -> Iterator[Case]:
    x = float_sample(np.float32)
    names = ("tf32", "half2", "bfloat2", "half2_relu", "bfloat2_relu")
    yield Case(
        "float to tf32 and packed registers",
        REGISTERS,
        {"x": x},
        {name: blank(np.uint32, x.size) for name in names}
        | {"unpacked": blank(np.float32, x.size, 4)},
        grid=(x.size // 256, 1, 1),
        block=(256, 1, 1),
    )


# Approximations: within PTX ISA's bounds of the emulator's exact values.

APPROXIMATIONS = """
#include "gf/math.cuh"
extern "C" __global__ void k(const float* x, float* exp2, float* log2, float* reciprocal,
                             float* rsqrt,
                             float* sqrt, float* tanh) {
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
    x = np.concatenate(
        [
            random.uniform(-130, 130, 3000),
            random.uniform(-2, 2, 3000),
            2.0 ** random.uniform(-126, 127, 2000),
            [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0, 0.5, 1e-40, -1e-40, 3e38],
        ]
    )
    x = np.resize(x, 8192).astype(np.float32)
    # Two errors add up: the device's, and the emulator's rounding (half a unit in the last place).
    half_ulp = 2.0**-24
    return Case(
        "approximations",
        APPROXIMATIONS,
        {"x": x},
        {
            name: blank(np.float32, x.size)
            for name in ("exp2", "log2", "reciprocal", "rsqrt", "sqrt", "tanh")
        },
        grid=(32, 1, 1),
        block=(256, 1, 1),
        bounds={
            "exp2": (2.0**-22 + half_ulp, 0.0),
            "log2": (2.0**-22 + half_ulp, 2.0**-22 + half_ulp),
            "reciprocal": (2.0**-23 + half_ulp, 0.0),
            "rsqrt": (2.0**-22.9 + half_ulp, 0.0),
            "sqrt": (2.0**-23 + half_ulp, 0.0),
            "tanh": (2.0**-11 + half_ulp, 0.0),
        },
    )
