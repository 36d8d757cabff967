// Stands in for CUDA's cuda_fp16.h.
#pragma once
#include "cuda_runtime.h"
#include "gf_emulator/float16_functions.h"

using __half = gf_emulator::Float16<gf_emulator::HalfFormat>;
using __half2 = gf_emulator::Float16x2<gf_emulator::HalfFormat>;
using half = __half;
using half2 = __half2;
using __half_raw = gf_emulator::HalfFormat::Raw;
using __half2_raw = gf_emulator::HalfFormat::Raw2;

__forceinline__ __half __float2half(float x) { return x; }
__forceinline__ __half __float2half_rn(float x) { return x; }
__forceinline__ __half __double2half(double x) { return x; }
__forceinline__ float __half2float(__half x) { return x; }
__forceinline__ __half __int2half_rn(int x) { return x; }
__forceinline__ __half __uint2half_rn(unsigned x) { return x; }
__forceinline__ int __half2int_rn(__half x) { return __float2int_rn(x); }
__forceinline__ int __half2int_rz(__half x) { return __float2int_rz(x); }
__forceinline__ unsigned short __half_as_ushort(__half x) { return x.bits; }
__forceinline__ short __half_as_short(__half x) { return short(x.bits); }
__forceinline__ __half __ushort_as_half(unsigned short x) { return __half::from_bits(x); }
__forceinline__ __half __short_as_half(short x) { return __half::from_bits((unsigned short)x); }

__forceinline__ __half2 make_half2(__half x, __half y) { return {x, y}; }
__forceinline__ __half2 __halves2half2(__half x, __half y) { return {x, y}; }
__forceinline__ __half2 __half2half2(__half x) { return {x, x}; }
__forceinline__ __half2 __float2half2_rn(float x) { return {x, x}; }
__forceinline__ __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
__forceinline__ __half2 __float22half2_rn(float2 x) { return {x.x, x.y}; }
__forceinline__ float2 __half22float2(__half2 x) { return {x.x, x.y}; }
__forceinline__ __half __low2half(__half2 x) { return x.x; }
__forceinline__ __half __high2half(__half2 x) { return x.y; }
__forceinline__ __half2 __lowhigh2highlow(__half2 x) { return {x.y, x.x}; }

GF_EMULATOR_CONVERSIONS(__half, gf_emulator::HalfFormat, half)
__forceinline__ __half2 __low2half2(__half2 x) { return {x.x, x.x}; }
__forceinline__ __half2 __high2half2(__half2 x) { return {x.y, x.y}; }
__forceinline__ __half2 __lows2half2(__half2 x, __half2 y) { return {x.x, y.x}; }
__forceinline__ __half2 __highs2half2(__half2 x, __half2 y) { return {x.y, y.y}; }

__forceinline__ __half atomicAdd(__half* address, __half value) {
    return gf_emulator::atomic_add(address, value, gf_emulator::AtomicType::float16);
}
__forceinline__ __half2 atomicAdd(__half2* address, __half2 value) {
    return gf_emulator::atomic_add(address, value, gf_emulator::AtomicType::float16x2);
}
