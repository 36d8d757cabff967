// CUDA's DPX functions on whole words: sums, maxima and minima of two or three (CUDA Math API, "SIMD Intrinsics").
#pragma once
#include "gf_emulator/qualifiers.h"

namespace gf_emulator {
template <class T>
__forceinline__ T dpx_max(T a, T b) {
    return a < b ? b : a;
}
template <class T>
__forceinline__ T dpx_min(T a, T b) {
    return b < a ? b : a;
}
__forceinline__ int dpx_relu(int a) { return a < 0 ? 0 : a; }
}  // namespace gf_emulator

#define GF_EMULATOR_DPX(word, type, bits)                                                                        \
    __forceinline__ type __vi##word##_##bits##32(type a, type b) { return gf_emulator::dpx_##word(a, b); }       \
    __forceinline__ type __vi##word##3_##bits##32(type a, type b, type c) {                                      \
        return gf_emulator::dpx_##word(gf_emulator::dpx_##word(a, b), c);                                        \
    }                                                                                                            \
    __forceinline__ type __viadd##word##_##bits##32(type a, type b, type c) {                                    \
        return gf_emulator::dpx_##word(type(unsigned(a) + unsigned(b)), c);                                      \
    }                                                                                                            \
    __forceinline__ type __vib##word##_##bits##32(type a, type b, bool* is_first) {                              \
        *is_first = gf_emulator::dpx_##word(b, a) == a;                                                          \
        return gf_emulator::dpx_##word(a, b);                                                                    \
    }
GF_EMULATOR_DPX(max, int, s)
GF_EMULATOR_DPX(min, int, s)
GF_EMULATOR_DPX(max, unsigned, u)
GF_EMULATOR_DPX(min, unsigned, u)
#undef GF_EMULATOR_DPX

#define GF_EMULATOR_DPX_RELU(word)                                                                                  \
    __forceinline__ int __vi##word##_s32_relu(int a, int b) { return gf_emulator::dpx_relu(__vi##word##_s32(a, b)); } \
    __forceinline__ int __vi##word##3_s32_relu(int a, int b, int c) {                                               \
        return gf_emulator::dpx_relu(__vi##word##3_s32(a, b, c));                                                   \
    }                                                                                                               \
    __forceinline__ int __viadd##word##_s32_relu(int a, int b, int c) {                                             \
        return gf_emulator::dpx_relu(__viadd##word##_s32(a, b, c));                                                 \
    }
GF_EMULATOR_DPX_RELU(max)
GF_EMULATOR_DPX_RELU(min)
#undef GF_EMULATOR_DPX_RELU
