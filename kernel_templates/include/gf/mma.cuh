#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace gf {

// d += a * b on one warp: a is 16 x 16 (row major), b is 16 x 8 (column major), d is 16 x 8 in float; T is
// __half or __nv_bfloat16. With g = lane / 4 and t = lane % 4, low half first:
//   a[0] = A[g][2t..], a[1] = A[g + 8][2t..], a[2] = A[g][2t + 8..], a[3] = A[g + 8][2t + 8..]
//   b0 = B[2t..][g], b1 = B[2t + 8..][g];  d[0..1] = D[g][2t..], d[2..3] = D[g + 8][2t..]
// Undefined unless all 32 lanes run it together. PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating
// point type".
//! Undefined, too: a lane that has exited, and in which order and how rounded the products are summed. The same for
//! both types.
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);

template <>
__device__ __forceinline__ void mma_m16n8k16<__half>(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                                     unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(float (&d)[4], const unsigned (&a)[4],
                                                            unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace gf
