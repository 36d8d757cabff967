#pragma once

namespace gf {

// The last of S_q query rows sees all of S_kv keys, and each row above it one key less.
//! Undefined: the result for a row of S_q or more, which would see more than S_kv keys; nothing reports it.
struct Mask {
    static __device__ __forceinline__ int visible_keys(int row, int S_q, int S_kv)
    {
        return max(row + 1 + S_kv - S_q, 0);
    }
};

}  // namespace gf
