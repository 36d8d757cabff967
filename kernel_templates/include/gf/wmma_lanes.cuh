#pragma once

namespace gf {

// Made by scripts/make_lane_map.py from a description of bits; change it there.
//
// Where element x[e] of lane l lies in a 16 x 16 float accumulator of wmma. CUDA leaves that open; this is what an
// H200 (sm_90) does and what is published of sm_80. tests/gpu/test_gpu_lane_map.py asks a GPU, by storing it.
// Each lane has elements of 2 rows, and 4 neighbouring lanes share a row.
//
//      e = 0       1       2       3       4       5       6       7
//   l =  0: (0,0)   (0,1)   (8,0)   (8,1)   (0,8)   (0,9)   (8,8)   (8,9)
//   l =  1: (0,2)   (0,3)   (8,2)   (8,3)   (0,10)  (0,11)  (8,10)  (8,11)
//   l =  4: (1,0)   (1,1)   (9,0)   (9,1)   (1,8)   (1,9)   (9,8)   (9,9)
//   l = 31: (7,6)   (7,7)   (15,6)  (15,7)  (7,14)  (7,15)  (15,14) (15,15)
//! Undefined: a lane beyond 31, an element beyond 7, and a GPU with another lane map; nothing reports them.
__device__ constexpr int accumulator_row(int lane, int element) { return lane / 4 + element / 2 % 2 * 8; }
__device__ constexpr int accumulator_column(int lane, int element) { return element % 2 + lane % 4 * 2 + element / 4 * 8; }

// Which of its lane's rows an element is in.
//! Undefined: an element beyond 7.
__device__ constexpr int accumulator_half(int element) { return element / 2 % 2; }

//! How many neighbouring lanes share a row. Undefined: a GPU with another lane map.
constexpr int accumulator_row_lanes = 4;

}  // namespace gf
