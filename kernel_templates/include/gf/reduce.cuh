#pragma once

namespace gf {

// The largest `value` among each aligned group of `width` neighbouring lanes (a power of two), in every lane
// of it. Undefined unless all 32 lanes run it together. CUDA C++ Programming Guide, "Warp Shuffle Functions".
//! Undefined, too: a lane that has exited (the emulator: `undefined_shuffle`). A NaN counts only where all are NaN.
template <int width = 32>
__device__ __forceinline__ float warp_max(float value) {
    static_assert(width >= 1 && width <= 32 && (width & (width - 1)) == 0,
                  "width is a power of two up to 32");
#pragma unroll
    for (int distance = width / 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
    return value;
}

// The sum of `value` over each aligned group of `width` neighbouring lanes, in every lane of it, in one fixed
// order.
//! Undefined: as for warp_max. A NaN gives a NaN in every lane of its group.
template <int width = 32>
__device__ __forceinline__ float warp_sum(float value) {
    static_assert(width >= 1 && width <= 32 && (width & (width - 1)) == 0,
                  "width is a power of two up to 32");
#pragma unroll
    for (int distance = width / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

}  // namespace gf
