#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace gf {

// A float rounded to tf32 (8 exponent and 10 fraction bits), to nearest, ties away from zero, as the register
// that mma takes; a NaN becomes 0x7fffffff. Needs sm_80. PTX ISA, "cvt.rna.tf32.f32".
//! Undefined: nothing; an infinity stays one.
__device__ __forceinline__ unsigned to_tf32(float value) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

// Two floats rounded to nearest even in one register, `low` in its low half: what ldmatrix, stmatrix and mma
// move. Beyond the format's range they become infinite, a NaN becomes 0x7fff. Needs sm_80. PTX ISA,
// "cvt.rn.f16x2.f32", "cvt.rn.bf16x2.f32".
//! Undefined: nothing.
__device__ __forceinline__ unsigned pack_half2(float low, float high) {
    unsigned bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}
__device__ __forceinline__ unsigned pack_bfloat162(float low, float high) {
    unsigned bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

// The same, and what is below zero becomes +0 (a rectifier for free). PTX ISA, "cvt.rn.relu.f16x2.f32".
//! Undefined: nothing; a NaN becomes 0x7fff, whatever its sign.
__device__ __forceinline__ unsigned pack_half2_relu(float low, float high) {
    unsigned bits;
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}
__device__ __forceinline__ unsigned pack_bfloat162_relu(float low, float high) {
    unsigned bits;
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

// The two halves of a packed register as floats, exactly; x is the low one.
//! Undefined: nothing; a NaN stays one, its bits may change.
__device__ __forceinline__ float2 unpack_half2(unsigned bits) {
    return __half22float2(*reinterpret_cast<const __half2*>(&bits));
}
__device__ __forceinline__ float2 unpack_bfloat162(unsigned bits) {
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&bits));
}

}  // namespace gf
