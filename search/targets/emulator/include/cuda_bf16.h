// Stands in for CUDA's cuda_bf16.h.
#pragma once
#include "cuda_runtime.h"
#include "gf_emulator/float16_functions.h"

using __nv_bfloat16 = gf_emulator::Float16<gf_emulator::BFloat16Format>;
using __nv_bfloat162 = gf_emulator::Float16x2<gf_emulator::BFloat16Format>;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
using __nv_bfloat16_raw = gf_emulator::BFloat16Format::Raw;
using __nv_bfloat162_raw = gf_emulator::BFloat16Format::Raw2;

__forceinline__ __nv_bfloat16 __float2bfloat16(float x) { return x; }
__forceinline__ __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
__forceinline__ __nv_bfloat16 __double2bfloat16(double x) { return x; }
__forceinline__ float __bfloat162float(__nv_bfloat16 x) { return x; }
__forceinline__ unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
__forceinline__ __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __nv_bfloat16::from_bits(x); }

__forceinline__ __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
__forceinline__ __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
__forceinline__ __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
__forceinline__ __nv_bfloat162 __float2bfloat162_rn(float x) { return {x, x}; }
__forceinline__ __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
__forceinline__ __nv_bfloat162 __float22bfloat162_rn(float2 x) { return {x.x, x.y}; }
__forceinline__ float2 __bfloat1622float2(__nv_bfloat162 x) { return {x.x, x.y}; }
__forceinline__ __nv_bfloat16 __low2bfloat16(__nv_bfloat162 x) { return x.x; }
__forceinline__ __nv_bfloat16 __high2bfloat16(__nv_bfloat162 x) { return x.y; }

GF_EMULATOR_CONVERSIONS(__nv_bfloat16, gf_emulator::BFloat16Format, bfloat16)
__forceinline__ __nv_bfloat162 __low2bfloat162(__nv_bfloat162 x) { return {x.x, x.x}; }
__forceinline__ __nv_bfloat162 __high2bfloat162(__nv_bfloat162 x) { return {x.y, x.y}; }
__forceinline__ __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 x, __nv_bfloat162 y) { return {x.x, y.x}; }
__forceinline__ __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 x, __nv_bfloat162 y) { return {x.y, y.y}; }
__forceinline__ short __bfloat16_as_short(__nv_bfloat16 x) { return short(x.bits); }
__forceinline__ __nv_bfloat16 __short_as_bfloat16(short x) { return __nv_bfloat16::from_bits((unsigned short)x); }
__forceinline__ __nv_bfloat16 __int2bfloat16_rn(int x) { return x; }
__forceinline__ __nv_bfloat16 __uint2bfloat16_rn(unsigned x) { return x; }
__forceinline__ int __bfloat162int_rn(__nv_bfloat16 x) { return __float2int_rn(x); }
__forceinline__ int __bfloat162int_rz(__nv_bfloat16 x) { return __float2int_rz(x); }
__forceinline__ __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 x) { return {x.y, x.x}; }

__forceinline__ __nv_bfloat16 atomicAdd(__nv_bfloat16* address, __nv_bfloat16 value) {
    return gf_emulator::atomic_add(address, value, gf_emulator::AtomicType::bfloat16);
}
__forceinline__ __nv_bfloat162 atomicAdd(__nv_bfloat162* address, __nv_bfloat162 value) {
    return gf_emulator::atomic_add(address, value, gf_emulator::AtomicType::bfloat16x2);
}
