// Emulated form of gf/convert.cuh.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "gf_emulator/float8.h"

namespace gf {

__device__ __forceinline__ unsigned to_tf32(float value) { return gf_emulator::tf32_bits(value); }

__device__ __forceinline__ unsigned pack_half2(float low, float high) {
    return gf_emulator::bit_cast<unsigned>(__floats2half2_rn(low, high));
}
__device__ __forceinline__ unsigned pack_bfloat162(float low, float high) {
    return gf_emulator::bit_cast<unsigned>(__floats2bfloat162_rn(low, high));
}

__device__ __forceinline__ unsigned pack_half2_relu(float low, float high) {
    return pack_half2(low <= 0.0f ? 0.0f : low, high <= 0.0f ? 0.0f : high);
}
__device__ __forceinline__ unsigned pack_bfloat162_relu(float low, float high) {
    return pack_bfloat162(low <= 0.0f ? 0.0f : low, high <= 0.0f ? 0.0f : high);
}

__device__ __forceinline__ float2 unpack_half2(unsigned bits) {
    return __half22float2(gf_emulator::bit_cast<__half2>(bits));
}
__device__ __forceinline__ float2 unpack_bfloat162(unsigned bits) {
    return __bfloat1622float2(gf_emulator::bit_cast<__nv_bfloat162>(bits));
}

}  // namespace gf
