// Emulated form of gf/math.cuh: exact values, rounded once, subnormals flushed where the device flushes them.
#pragma once
#include <cuda_fp16.h>

namespace gf {

__device__ __forceinline__ float exp2_approx(float x) {
    return gf_emulator::flushed(gf_emulator::fast_exp2(gf_emulator::flushed(x)));
}
__device__ __forceinline__ __half2 exp2_approx(__half2 x) { return h2exp2(x); }
__device__ __forceinline__ float log2_approx(float x) {
    return gf_emulator::flushed(gf_emulator::fast_log2(gf_emulator::flushed(x)));
}
__device__ __forceinline__ float reciprocal_approx(float x) {
    return gf_emulator::flushed(__frcp_rn(gf_emulator::flushed(x)));
}
__device__ __forceinline__ float rsqrt_approx(float x) {
    return gf_emulator::flushed(__frsqrt_rn(gf_emulator::flushed(x)));
}
__device__ __forceinline__ float sqrt_approx(float x) {
    return gf_emulator::flushed(__fsqrt_rn(gf_emulator::flushed(x)));
}
__device__ __forceinline__ float tanh_approx(float x) { return gf_emulator::fast_tanh(x); }
__device__ __forceinline__ __half2 tanh_approx(__half2 x) { return {htanh(x.x), htanh(x.y)}; }

}  // namespace gf
