#pragma once
#include <mma.h>

#include "gf/ldmatrix.cuh"

namespace gf {

// Load a 16 x 16 operand of wmma from rows that lie anywhere in shared memory: what load_matrix_sync does for rows at
// one distance. place(row, column) is the address of 8 neighbouring elements, 16-byte aligned, column 0 or 8 of what
// lies in memory: A by rows, B by columns (its memory rows are the columns) or by rows. Undefined unless all 32 lanes
// run it together.
//
// wmma's lane map is not documented. Of 16-bit operands it is that of mma.m16n8k16, the four 8 x 8 matrices in the
// order (0,0) (8,0) (0,8) (8,8), and half operands hold everything twice: what an H200 (sm_90) does and what is
// published of sm_80. tests/gpu/test_gpu_lane_map.py compares both loads on a GPU.
//! Undefined: a GPU whose wmma has another lane map; nothing reports it.
template <class Fragment>
__device__ __forceinline__ void set_fragment(Fragment& fragment, const unsigned (&registers)[4]) {
    static_assert(sizeof(fragment.x[0]) == 2, "16-bit operands only");
    using Stored = typename Fragment::element_type;
    struct Pair {
        Stored low, high;
    };
#pragma unroll
    for (int i = 0; i < fragment.num_elements / 2; ++i) {
        const Pair pair = *reinterpret_cast<const Pair*>(&registers[i % 4]);
        fragment.x[2 * i] = pair.low;
        fragment.x[2 * i + 1] = pair.high;
    }
}

//! Undefined, too: a lane that has exited, a row that is not 16-byte aligned (the emulator: `misaligned`), and a row
//! outside of this block's shared memory (`device_fault`).
template <class T, class Place>
__device__ __forceinline__ void load_fragment(
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, T, nvcuda::wmma::row_major>& fragment, Place place) {
    const int lane = threadIdx.x % 32;
    unsigned registers[4];
    ldmatrix<4>(registers, place(lane % 16, lane / 16 * 8));
    set_fragment(fragment, registers);
}

template <class T, class Place>
__device__ __forceinline__ void load_fragment(
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, T, nvcuda::wmma::col_major>& fragment, Place place) {
    const int lane = threadIdx.x % 32;
    unsigned registers[4];
    ldmatrix<4>(registers, place(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8));
    set_fragment(fragment, registers);
}

template <class T, class Place>
__device__ __forceinline__ void load_fragment(
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, T, nvcuda::wmma::row_major>& fragment, Place place) {
    const int lane = threadIdx.x % 32;
    unsigned registers[4];
    ldmatrix_transposed<4>(registers, place(lane % 16, lane / 16 * 8));
    set_fragment(fragment, registers);
}

}  // namespace gf
