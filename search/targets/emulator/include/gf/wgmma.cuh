// Emulated form of gf/wgmma.cuh.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include "gf/mbarrier.cuh"

namespace gf {

template <int swizzle_bytes>
__device__ __forceinline__ unsigned long long matrix_descriptor(const void* shared, unsigned leading_bytes,
                                                                unsigned stride_bytes) {
    static_assert(swizzle_bytes == 0 || swizzle_bytes == 32 || swizzle_bytes == 64 || swizzle_bytes == 128,
                  "no swizzle, or one of 32, 64 or 128 bytes");
    constexpr unsigned long long mode = swizzle_bytes == 0 ? 0 : swizzle_bytes == 128 ? 1 : swizzle_bytes == 64 ? 2 : 3;
    return (shared_address(shared) & 0x3ffffull) >> 4 | (leading_bytes & 0x3ffffull) >> 4 << 16 |
           (stride_bytes & 0x3ffffull) >> 4 << 32 | mode << 62;
}

__device__ __forceinline__ void wgmma_fence() { gf_emulator_wgmma_fence(); }
__device__ __forceinline__ void wgmma_commit() { gf_emulator_wgmma_commit(); }

template <int groups_left_in_flight>
__device__ __forceinline__ void wgmma_wait() {
    gf_emulator_wgmma_wait(groups_left_in_flight);
}

// The device declares each shape's instructions; here a declaration is only asked for.
template <class T, int N>
struct WgmmaShape;

namespace emulated {
template <class T>
constexpr gf_emulator::Element wgmma_element() {
    if constexpr (std::is_same_v<T, __half>)
        return gf_emulator::Element::float16;
    else if constexpr (std::is_same_v<T, __nv_bfloat16>)
        return gf_emulator::Element::bfloat16;
    else
        return gf_emulator::float8_element<T>();
}
}  // namespace emulated

template <class T, int N, bool transpose_a = false, bool transpose_b = false>
__device__ __forceinline__ void wgmma(float (&acc)[N / 2], unsigned long long a, unsigned long long b,
                                      bool accumulate) {
    static_assert(sizeof(T) == 2 || (!transpose_a && !transpose_b), "8-bit operands are K-major");
    static_assert(WgmmaShape<T, N>::declared, "GF_WGMMA_SHAPE declares it");
    gf_emulator_wgmma(acc, a, nullptr, b, N, emulated::wgmma_element<T>(),
                      unsigned(accumulate) | 2u * transpose_a | 4u * transpose_b);
}
template <class T, int N, bool transpose_b = false>
__device__ __forceinline__ void wgmma(float (&acc)[N / 2], const unsigned (&a)[4], unsigned long long b,
                                      bool accumulate) {
    static_assert(sizeof(T) == 2 || !transpose_b, "8-bit operands are K-major");
    static_assert(WgmmaShape<T, N>::declared, "GF_WGMMA_SHAPE declares it");
    gf_emulator_wgmma(acc, 0, a, b, N, emulated::wgmma_element<T>(), unsigned(accumulate) | 4u * transpose_b);
}

}  // namespace gf

#define GF_WGMMA_SHAPE(T, N)                                                                               \
    template <>                                                                                            \
    struct gf::WgmmaShape<T, N> {                                                                          \
        static_assert((N) % 8 == 0 && (N) >= 8 && (N) <= 256, "N is a multiple of 8, from 8 to 256");       \
        static constexpr bool declared = true;                                                             \
    }
