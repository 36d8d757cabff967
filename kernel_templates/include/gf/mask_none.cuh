#pragma once

namespace gf {

// No mask: each of S_q query rows sees all of S_kv keys.
//! Undefined: nothing.
struct Mask {
    static __device__ __forceinline__ int visible_keys(int row, int S_q, int S_kv) { return S_kv; }
};

}  // namespace gf
