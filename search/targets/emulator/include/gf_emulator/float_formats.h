// Exact conversions between float32 and the 16-bit formats, round to nearest even, by bit pattern. Shared by
// device code and by the runtime's tensor cores.
#pragma once
#include "gf_emulator/standard.h"

namespace gf_emulator {

inline std::uint32_t float_bits(float value) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}
inline float float_from_bits(std::uint32_t bits) {
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

// Rounding a double to float *to odd* keeps a sticky last bit, so that a second rounding to a format of at
// most 22 significand bits gives what one rounding would have given (Boldo and Melquiond, "Emulation of FMA",
// 2008).
inline float round_to_odd(double value) {
    const float nearest = float(value);
    if (double(nearest) == value || nearest != nearest) return nearest;
    const std::uint32_t bits = float_bits(nearest);
    if (bits & 1u) return nearest;
    const bool rounded_away = std::fabs(double(nearest)) > std::fabs(value);
    return float_from_bits(rounded_away ? bits - 1 : bits + 1);
}

// a * b + c with a sticky last bit; exact products only (a and b of at most 26 significand bits).
inline double multiply_add_to_odd(double a, double b, double c) {
    const double product = a * b, sum = product + c;
    const double back = sum - product;
    const double error = (product - (sum - back)) + (c - back);
    if (error == 0.0 || error != error) return sum;
    std::uint64_t bits;
    __builtin_memcpy(&bits, &sum, sizeof bits);
    if (bits & 1u) return sum;
    bits += (error > 0.0) == (sum > 0.0) ? 1 : -1;
    double odd;
    __builtin_memcpy(&odd, &bits, sizeof odd);
    return odd;
}

#if defined(__F16C__)
// The two instructions of <immintrin.h> that are needed here. The header itself would be most of the precompiled
// prelude, which every kernel's compiler reads.
typedef float FourFloats __attribute__((vector_size(16)));
typedef short EightHalves __attribute__((vector_size(16)));

inline float f16c_to_float(std::uint16_t half) {
    const EightHalves halves = {short(half), 0, 0, 0, 0, 0, 0, 0};
    const FourFloats floats = __builtin_ia32_vcvtph2ps(halves);
    return floats[0];
}
inline std::uint16_t f16c_from_float(float value) {
    const FourFloats floats = {value, 0, 0, 0};
    const EightHalves halves = __builtin_ia32_vcvtps2ph(floats, 0);  // 0: to nearest even
    return std::uint16_t(halves[0]);
}
#endif

// A NaN that a conversion makes has one bit pattern, whatever came in (CUDA Math API, "Half Precision
// Conversion and Data Movement": canonical NaN).
struct HalfFormat {
    struct Raw {
        unsigned short x;
    };
    struct Raw2 {
        unsigned short x, y;
    };
    static float to_float(std::uint16_t half) {
        if ((half & 0x7fffu) > 0x7c00u) return float_from_bits(0x7fffffffu);
#if defined(__F16C__)
        return f16c_to_float(half);
#else
        const std::uint32_t sign = std::uint32_t(half & 0x8000u) << 16, exponent = half >> 10 & 31,
                            fraction = half & 1023;
        if (exponent == 31) return float_from_bits(sign | 0x7f800000u);
        if (exponent == 0) return float_from_bits(sign | float_bits(float(fraction) * 0x1p-24f));
        return float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
#endif
    }
    static std::uint16_t from_float(float value) {
        if (value != value) return 0x7fff;
#if defined(__F16C__)
        return f16c_from_float(value);
#else
        const std::uint32_t bits = float_bits(value), sign = bits >> 16 & 0x8000u,
                            magnitude = bits & 0x7fffffffu;
        if (magnitude >= 0x477ff000u) return std::uint16_t(sign | 0x7c00u);
        // Below the smallest normal, adding 0.5 lets the float adder round at half's last subnormal place.
        if (magnitude < 0x38800000u)
            return std::uint16_t(sign | (float_bits(float_from_bits(magnitude) + 0.5f) - 0x3f000000u));
        return std::uint16_t(sign | (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13);
#endif
    }
};

struct BFloat16Format {
    struct Raw {
        unsigned short x;
    };
    struct Raw2 {
        unsigned short x, y;
    };
    static float to_float(std::uint16_t bfloat) { return float_from_bits(std::uint32_t(bfloat) << 16); }
    static std::uint16_t from_float(float value) {
        const std::uint32_t bits = float_bits(value);
        if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
        return std::uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
};

}  // namespace gf_emulator
