// half and bfloat16 numbers as host code uses them: storage, conversions and the operators by way of float.
#pragma once
#include "cuda_runtime.h"

namespace gf_recorder {
inline unsigned bits_of(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
inline float float_of(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
// IEEE 754 binary16, rounded to nearest even.
inline unsigned short half_bits(float value) {
    const unsigned bits = bits_of(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (unsigned short)(sign | 0x7fff);
    if (magnitude >= 0x477ff000) return (unsigned short)(sign | 0x7c00);
    if (magnitude < 0x38800000) return (unsigned short)(sign | unsigned(std::nearbyint(double(float_of(magnitude)) * 16777216.0)));
    const unsigned rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return (unsigned short)(sign | (rounded - 0x38000000) >> 13);
}
inline float half_value(unsigned short bits) {
    const unsigned sign = unsigned(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
    if (magnitude >= 0x7c00) return float_of(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    if (magnitude < 0x400) return std::ldexp(float(magnitude), -24) * (sign ? -1 : 1);
    return float_of(sign | (magnitude << 13) + 0x38000000);
}
inline unsigned short brain_bits(float value) {
    const unsigned bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float brain_value(unsigned short bits) { return float_of(unsigned(bits) << 16); }
}  // namespace gf_recorder

#define GF_SHORT_FLOAT(name, pair, to_bits, to_value)                                                      \
    struct name {                                                                                          \
        unsigned short x;                                                                                  \
        name() = default;                                                                                  \
        name(float value) : x(gf_recorder::to_bits(value)) {}                                              \
        name(double value) : name(float(value)) {}                                                         \
        name(int value) : name(float(value)) {}                                                            \
        operator float() const { return gf_recorder::to_value(x); }                                        \
        name& operator+=(name other) { return *this = name(float(*this) + float(other)); }                 \
        name& operator-=(name other) { return *this = name(float(*this) - float(other)); }                 \
        name& operator*=(name other) { return *this = name(float(*this) * float(other)); }                 \
    };                                                                                                     \
    struct alignas(4) pair {                                                                               \
        name x, y;                                                                                         \
    };
GF_SHORT_FLOAT(__half, __half2, half_bits, half_value)
GF_SHORT_FLOAT(__nv_bfloat16, __nv_bfloat162, brain_bits, brain_value)
#undef GF_SHORT_FLOAT
typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
inline __half __float2half(float value) { return __half(value); }
inline __half __float2half_rn(float value) { return __half(value); }
inline float __half2float(__half value) { return float(value); }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return __nv_bfloat16(value); }
inline float __bfloat162float(__nv_bfloat16 value) { return float(value); }
