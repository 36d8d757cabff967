#pragma once

namespace gf {

// d += a * b on one warp in tf32: a is 16 x 8 (row major), b is 8 x 8 (column major), d is 16 x 8 in float.
// With g = lane / 4 and t = lane % 4:
//   a[0] = A[g][t], a[1] = A[g + 8][t], a[2] = A[g][t + 4], a[3] = A[g + 8][t + 4]
//   b0 = B[t][g], b1 = B[t + 4][g];  d[0..1] = D[g][2t..], d[2..3] = D[g + 8][2t..]
// Operands are to_tf32's (gf/convert.cuh); what the device makes of a float's 13 lowest bits is undefined (it
// drops them, and so does the emulator). Undefined unless all 32 lanes run it together. Needs sm_80. PTX ISA,
// "Matrix Fragments for mma.m16n8k8".
//! Undefined, too: a lane that has exited, and in which order and how rounded the products are summed.
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                                 unsigned b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace gf
