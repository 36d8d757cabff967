// The masks of an attention: how many leading keys query row `row` sees, of S_q rows and S_kv keys.
#pragma once

namespace gf {

// Every row sees all keys.
struct NoMask {
    static __device__ __forceinline__ int visible_keys(int row, int S_q, int S_kv) { return S_kv; }
};

// Row i sees keys 0 to i: the diagonal begins at the first row and the first key.
struct CausalTopLeft {
    static __device__ __forceinline__ int visible_keys(int row, int S_q, int S_kv) { return min(row + 1, S_kv); }
};

// The last row sees all keys, and each row above it one less: the diagonal ends at the last row and the last key.
struct CausalBottomRight {
    static __device__ __forceinline__ int visible_keys(int row, int S_q, int S_kv)
    {
        return max(row + 1 + S_kv - S_q, 0);
    }
};

// Mask, but `count` keys at most. The probe `single_tile` thus ends a walk after its first tile.
template <class Mask, int count>
struct FirstKeys {
    static __device__ __forceinline__ int visible_keys(int row, int S_q, int S_kv)
    {
        return min(Mask::visible_keys(row, S_q, S_kv), count);
    }
};

}  // namespace gf
