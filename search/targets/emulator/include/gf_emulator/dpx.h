// CUDA's DPX functions on words and on their halves: sums, maxima and minima of two or three (CUDA Math API, "SIMD
// Intrinsics").
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

// Of each half; `value` reads x, y and z.
#define GF_EMULATOR_DPX_HALVES(type, value)                                                                    \
    unsigned result = 0;                                                                                       \
    for (int shift = 0; shift < 32; shift += 16) {                                                             \
        [[maybe_unused]] const int x = type(a >> shift), y = type(b >> shift), z = type(c >> shift);           \
        result |= (unsigned(value) & 0xffffu) << shift;                                                        \
    }                                                                                                          \
    return result;
#define GF_EMULATOR_DPX_THREE(name, type, value) \
    __forceinline__ unsigned name(unsigned a, unsigned b, unsigned c) { GF_EMULATOR_DPX_HALVES(type, value) }
#define GF_EMULATOR_DPX_PAIR(word, letter, type)                                                                      \
    GF_EMULATOR_DPX_THREE(__vi##word##3_##letter##16x2, type,                                                         \
                          gf_emulator::dpx_##word(gf_emulator::dpx_##word(x, y), z))                                  \
    GF_EMULATOR_DPX_THREE(__viadd##word##_##letter##16x2, type, gf_emulator::dpx_##word(int(type(x + y)), z))         \
    __forceinline__ unsigned __vib##word##_##letter##16x2(unsigned a, unsigned b, bool* is_first_high,                \
                                                          bool* is_first_low) {                                       \
        *is_first_low = gf_emulator::dpx_##word(type(b), type(a)) == type(a);                                         \
        *is_first_high = gf_emulator::dpx_##word(type(b >> 16), type(a >> 16)) == type(a >> 16);                      \
        const unsigned c = 0;                                                                                         \
        GF_EMULATOR_DPX_HALVES(type, gf_emulator::dpx_##word(x, y))                                                   \
    }
GF_EMULATOR_DPX_PAIR(max, s, short)
GF_EMULATOR_DPX_PAIR(min, s, short)
GF_EMULATOR_DPX_PAIR(max, u, std::uint16_t)
GF_EMULATOR_DPX_PAIR(min, u, std::uint16_t)
#undef GF_EMULATOR_DPX_PAIR

#define GF_EMULATOR_DPX_PAIR_RELU(word)                                                                               \
    GF_EMULATOR_DPX_THREE(__vi##word##3_s16x2_relu, short,                                                            \
                          gf_emulator::dpx_relu(gf_emulator::dpx_##word(gf_emulator::dpx_##word(x, y), z)))           \
    GF_EMULATOR_DPX_THREE(__viadd##word##_s16x2_relu, short,                                                          \
                          gf_emulator::dpx_relu(gf_emulator::dpx_##word(int(short(x + y)), z)))                       \
    __forceinline__ unsigned __vi##word##_s16x2_relu(unsigned a, unsigned b) {                                        \
        return __vi##word##3_s16x2_relu(a, b, b);                                                                     \
    }
GF_EMULATOR_DPX_PAIR_RELU(max)
GF_EMULATOR_DPX_PAIR_RELU(min)
#undef GF_EMULATOR_DPX_PAIR_RELU
#undef GF_EMULATOR_DPX_THREE
#undef GF_EMULATOR_DPX_HALVES
