#pragma once

namespace gf {

// A mask, but `count` keys at most. With it, the probe `single_tile` ends a walk after its first tile.
//! Undefined: what is undefined of `Mask`.
template <class Mask, int count>
struct FirstKeys {
    static __device__ __forceinline__ int visible_keys(int row, int S_q, int S_kv)
    {
        return min(Mask::visible_keys(row, S_q, S_kv), count);
    }
};

}  // namespace gf
