#pragma once
#include <cuda_fp16.h>

namespace gf {

// Approximations of one special-function instruction each. Stated errors are PTX ISA's bounds on the device;
// the emulator gives the rounded exact value, so results agree within them and not bit for bit. All but
// tanh_approx take subnormal inputs for zeros and give zeros for subnormal results, with their sign.

// 2^x; relative error 2^-22; -inf gives +0, NaN a NaN. PTX ISA, "ex2.approx.ftz.f32".
//! Undefined: which number within the stated error comes: GPU models may differ. The same for all below. Here, 128
//! and more give +inf, and below -126 it is +0.
__device__ __forceinline__ float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Two of them in half precision; relative error 2^-9.9, subnormals kept. PTX ISA, "ex2.approx.f16x2" (sm_75).
//! Undefined: as above; 16 and more give +inf, -inf gives +0, a NaN stays one.
__device__ __forceinline__ __half2 exp2_approx(__half2 x) {
    __half2 y;
    asm("ex2.approx.f16x2 %0, %1;"
        : "=r"(*reinterpret_cast<unsigned*>(&y))
        : "r"(*reinterpret_cast<const unsigned*>(&x)));
    return y;
}

// log2(x); absolute error 2^-22 between 0.5 and 2, relative error 2^-22 elsewhere; 0 gives -inf, below zero a
// NaN. PTX ISA, "lg2.approx.ftz.f32".
//! Undefined: as above; +inf gives +inf, a NaN stays one.
__device__ __forceinline__ float log2_approx(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1 / x; error 1 ulp; a zero gives the infinity of its sign. PTX ISA, "rcp.approx.ftz.f32".
//! Undefined: as above; an infinity gives the zero of its sign, so does what exceeds 2^126; a NaN stays one.
__device__ __forceinline__ float reciprocal_approx(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1 / sqrt(x); relative error 2^-22.9; a zero gives the infinity of its sign. PTX ISA,
// "rsqrt.approx.ftz.f32".
//! Undefined: as above; below zero it is a NaN, +inf gives +0, a NaN stays one.
__device__ __forceinline__ float rsqrt_approx(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// sqrt(x); relative error 2^-23. PTX ISA, "sqrt.approx.ftz.f32".
//! Undefined: as above; below zero it is a NaN, a zero keeps its sign, +inf and a NaN stay.
__device__ __forceinline__ float sqrt_approx(float x) {
    float y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// tanh(x); relative error 2^-11. PTX ISA, "tanh.approx.f32" (sm_75).
//! Undefined: as above; infinities give 1 and -1, a NaN stays one.
__device__ __forceinline__ float tanh_approx(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Two of them in half precision; absolute error 2^-10.987. PTX ISA, "tanh.approx.f16x2" (sm_75).
//! Undefined: as above; infinities give 1 and -1, a NaN stays one.
__device__ __forceinline__ __half2 tanh_approx(__half2 x) {
    __half2 y;
    asm("tanh.approx.f16x2 %0, %1;"
        : "=r"(*reinterpret_cast<unsigned*>(&y))
        : "r"(*reinterpret_cast<const unsigned*>(&x)));
    return y;
}

}  // namespace gf
