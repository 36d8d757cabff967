#pragma once
#include <cuda_fp8.h>

namespace gf {

// d += a * b on one warp in fp8: a is 16 x 32 (row major), b is 32 x 8 (column major), d is 16 x 8 in float;
// TA and TB are __nv_fp8_e4m3 or __nv_fp8_e5m2. With g = lane / 4 and t = lane % 4, lowest byte first:
//   a[0] = A[g][4t..], a[1] = A[g + 8][4t..], a[2] = A[g][4t + 16..], a[3] = A[g + 8][4t + 16..]
//   b0 = B[4t..][g], b1 = B[4t + 16..][g];  d[0..1] = D[g][2t..], d[2..3] = D[g + 8][2t..]
// How many bits of a partial sum the device keeps is not specified. Undefined unless all 32 lanes run it
// together. Needs sm_89. PTX ISA, "Matrix Fragments for mma.m16n8k32".
//! Undefined, too: a lane that has exited. The same for all four pairs of types.
template <class TA, class TB = TA>
__device__ __forceinline__ void mma_m16n8k32(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);

template <>
__device__ __forceinline__ void mma_m16n8k32<__nv_fp8_e4m3, __nv_fp8_e4m3>(float (&d)[4],
                                                                           const unsigned (&a)[4],
                                                                           unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void mma_m16n8k32<__nv_fp8_e4m3, __nv_fp8_e5m2>(float (&d)[4],
                                                                           const unsigned (&a)[4],
                                                                           unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void mma_m16n8k32<__nv_fp8_e5m2, __nv_fp8_e4m3>(float (&d)[4],
                                                                           const unsigned (&a)[4],
                                                                           unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void mma_m16n8k32<__nv_fp8_e5m2, __nv_fp8_e5m2>(float (&d)[4],
                                                                           const unsigned (&a)[4],
                                                                           unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace gf
