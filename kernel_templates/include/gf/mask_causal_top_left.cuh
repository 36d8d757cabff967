#pragma once

namespace gf {

// Query row i sees keys 0 to i, of S_q rows and S_kv keys: the diagonal begins at the first row and the first key.
//! Undefined: nothing; a row of S_q or more sees min(row + 1, S_kv) keys, like the others.
struct Mask {
    static __device__ __forceinline__ int visible_keys(int row, int S_q, int S_kv) { return min(row + 1, S_kv); }
};

}  // namespace gf
