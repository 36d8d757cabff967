// CUDA's SIMD intrinsics: the two halves or four bytes of a word, each on its own (CUDA Math API, "SIMD Intrinsics").
#pragma once
#include "gf_emulator/integers.h"

namespace gf_emulator {

template <class Part>
__forceinline__ int within(int value) {
    constexpr int bits = 8 * int(sizeof(Part));
    constexpr int low = std::is_signed_v<Part> ? -(1 << (bits - 1)) : 0;
    constexpr int high = std::is_signed_v<Part> ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
    return value < low ? low : value > high ? high : value;
}

template <class Part>
__forceinline__ unsigned sum_of_differences(unsigned a, unsigned b) {
    unsigned sum = 0;
    for (int i = 0; i < int(4 / sizeof(Part)); i++) {
        const int difference = int(part_of<Part>(a, i)) - int(part_of<Part>(b, i));
        sum += unsigned(difference < 0 ? -difference : difference);
    }
    return sum;
}

}  // namespace gf_emulator

// No function template: the compiler of every kernel would instantiate it for each of these functions.
#define GF_EMULATOR_VIDEO_OF(name, type, value)                                                              \
    __forceinline__ unsigned name(unsigned a, unsigned b) {                                                  \
        using Part = type;                                                                                   \
        constexpr unsigned bits = 8 * sizeof(Part), mask = (1u << bits) - 1;                                 \
        unsigned result = 0;                                                                                 \
        for (int i = 0; i < int(4 / sizeof(Part)); i++) {                                                    \
            [[maybe_unused]] const int x = gf_emulator::part_of<Part>(a, i);                                 \
            [[maybe_unused]] const int y = gf_emulator::part_of<Part>(b, i);                                 \
            result |= (unsigned(value) & mask) << (unsigned(i) * bits);                                      \
        }                                                                                                    \
        return result;                                                                                       \
    }
#define GF_EMULATOR_VIDEO(name, sign, value)                 \
    GF_EMULATOR_VIDEO_OF(name##2, sign short, value)         \
    GF_EMULATOR_VIDEO_OF(name##4, sign char, value)
#define GF_EMULATOR_VIDEO_COMPARE(name, sign, operation)                          \
    GF_EMULATOR_VIDEO(__vcmp##name, sign, x operation y ? -1 : 0)                 \
    GF_EMULATOR_VIDEO(__vset##name, sign, x operation y ? 1 : 0)
#define GF_EMULATOR_VIDEO_ONE(name, sign, value)                                                        \
    GF_EMULATOR_VIDEO(gf_emulator_v##name, sign, value)                                                 \
    __forceinline__ unsigned __v##name##2(unsigned a) { return gf_emulator_v##name##2(a, 0); }          \
    __forceinline__ unsigned __v##name##4(unsigned a) { return gf_emulator_v##name##4(a, 0); }

GF_EMULATOR_VIDEO(__vadd, signed, x + y)
GF_EMULATOR_VIDEO(__vaddss, signed, gf_emulator::within<Part>(x + y))
GF_EMULATOR_VIDEO(__vaddus, unsigned, gf_emulator::within<Part>(x + y))
GF_EMULATOR_VIDEO(__vsub, signed, x - y)
GF_EMULATOR_VIDEO(__vsubss, signed, gf_emulator::within<Part>(x - y))
GF_EMULATOR_VIDEO(__vsubus, unsigned, gf_emulator::within<Part>(x - y))
GF_EMULATOR_VIDEO(__vavgs, signed, (x + y + (x + y >= 0)) >> 1)
GF_EMULATOR_VIDEO(__vavgu, unsigned, (x + y + 1) >> 1)
GF_EMULATOR_VIDEO(__vhaddu, unsigned, (x + y) >> 1)
GF_EMULATOR_VIDEO(__vmaxs, signed, x > y ? x : y)
GF_EMULATOR_VIDEO(__vmaxu, unsigned, x > y ? x : y)
GF_EMULATOR_VIDEO(__vmins, signed, x < y ? x : y)
GF_EMULATOR_VIDEO(__vminu, unsigned, x < y ? x : y)
GF_EMULATOR_VIDEO(__vabsdiffs, signed, x > y ? x - y : y - x)
GF_EMULATOR_VIDEO(__vabsdiffu, unsigned, x > y ? x - y : y - x)
GF_EMULATOR_VIDEO_COMPARE(eq, unsigned, ==)
GF_EMULATOR_VIDEO_COMPARE(ne, unsigned, !=)
GF_EMULATOR_VIDEO_COMPARE(ges, signed, >=)
GF_EMULATOR_VIDEO_COMPARE(geu, unsigned, >=)
GF_EMULATOR_VIDEO_COMPARE(gts, signed, >)
GF_EMULATOR_VIDEO_COMPARE(gtu, unsigned, >)
GF_EMULATOR_VIDEO_COMPARE(les, signed, <=)
GF_EMULATOR_VIDEO_COMPARE(leu, unsigned, <=)
GF_EMULATOR_VIDEO_COMPARE(lts, signed, <)
GF_EMULATOR_VIDEO_COMPARE(ltu, unsigned, <)
GF_EMULATOR_VIDEO_ONE(abs, signed, x < 0 ? -x : x)
GF_EMULATOR_VIDEO_ONE(absss, signed, gf_emulator::within<Part>(x < 0 ? -x : x))
GF_EMULATOR_VIDEO_ONE(neg, signed, -x)
GF_EMULATOR_VIDEO_ONE(negss, signed, gf_emulator::within<Part>(-x))
#undef GF_EMULATOR_VIDEO_ONE
#undef GF_EMULATOR_VIDEO_COMPARE
#undef GF_EMULATOR_VIDEO
#undef GF_EMULATOR_VIDEO_OF

__forceinline__ unsigned __vsads2(unsigned a, unsigned b) { return gf_emulator::sum_of_differences<short>(a, b); }
__forceinline__ unsigned __vsads4(unsigned a, unsigned b) { return gf_emulator::sum_of_differences<signed char>(a, b); }
__forceinline__ unsigned __vsadu2(unsigned a, unsigned b) {
    return gf_emulator::sum_of_differences<unsigned short>(a, b);
}
__forceinline__ unsigned __vsadu4(unsigned a, unsigned b) {
    return gf_emulator::sum_of_differences<unsigned char>(a, b);
}
