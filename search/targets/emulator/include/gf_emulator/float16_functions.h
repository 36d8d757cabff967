// Functions that __half and __nv_bfloat16 have alike beyond those of float16.h (CUDA Math API, "Half Precision
// Intrinsics" and "Bfloat16 Precision Intrinsics").
#pragma once
#include "gf_emulator/float16.h"
#include "gf_emulator/rounding.h"

namespace gf_emulator {

// The value of this format next to `value` on the side that the rounding asks for.
template <class Format>
__forceinline__ Float16<Format> rounded_float16(double value, Rounding mode) {
    using Narrow = Float16<Format>;
    const Narrow nearest = value;
    const double error = double(float(nearest)) - value;
    const bool up = mode == Rounding::up || (mode == Rounding::to_zero && value < 0.0);
    if (!(up ? error < 0.0 : error > 0.0)) return nearest;
    if ((nearest.bits & 0x7fff) == 0) return Narrow::from_bits(up ? 1 : 0x8001);
    const bool grows = up != bool(nearest.bits & 0x8000);
    return Narrow::from_bits(std::uint16_t(nearest.bits + (grows ? 1 : -1)));
}

// As a double whose last bit is set where others were lost, so that it can be rounded once more.
template <class Integer>
__forceinline__ double sticky_double(Integer value) {
    if constexpr (sizeof(Integer) < 8) return double(value);
    const bool negative = value < 0;
    std::uint64_t size = negative ? 0 - std::uint64_t(value) : std::uint64_t(value);
    if (size >> 53) size = (size >> 11 | ((size & 0x7ff) != 0)) << 11;
    return negative ? -double(size) : double(size);
}

#define GF_EMULATOR_H __forceinline__ Float16<Format>
#define GF_EMULATOR_H2 __forceinline__ Float16x2<Format>
#define GF_EMULATOR_16 template <class Format>

GF_EMULATOR_16 GF_EMULATOR_H clamped_to_one(Float16<Format> x) { return __saturatef(x); }
GF_EMULATOR_16 GF_EMULATOR_H without_negatives(Float16<Format> x) {
    return x <= Float16<Format>(0.0f) ? Float16<Format>(0.0f) : x;
}

// Of one value and, element by element, of two.
#define GF_EMULATOR_ONE(one, two, value)                                                              \
    GF_EMULATOR_16 GF_EMULATOR_H one(Float16<Format> x) { return value; }                             \
    GF_EMULATOR_16 GF_EMULATOR_H2 two(Float16x2<Format> x) { return {one(x.x), one(x.y)}; }
#define GF_EMULATOR_BOTH(one, two, value)                                                             \
    GF_EMULATOR_16 GF_EMULATOR_H one(Float16<Format> x, Float16<Format> y) { return value; }          \
    GF_EMULATOR_16 GF_EMULATOR_H2 two(Float16x2<Format> x, Float16x2<Format> y) {                     \
        return {one(x.x, y.x), one(x.y, y.y)};                                                        \
    }
GF_EMULATOR_ONE(hceil, h2ceil, __builtin_ceilf(float(x)))
GF_EMULATOR_ONE(hfloor, h2floor, __builtin_floorf(float(x)))
GF_EMULATOR_ONE(htrunc, h2trunc, __builtin_truncf(float(x)))
GF_EMULATOR_ONE(hrint, h2rint, __builtin_rintf(float(x)))
GF_EMULATOR_ONE(hsin, h2sin, fast_sin(x))
GF_EMULATOR_ONE(hcos, h2cos, fast_cos(x))
GF_EMULATOR_ONE(hexp10, h2exp10, fast_exp10(x))
GF_EMULATOR_ONE(hlog10, h2log10, fast_log10(x))
GF_EMULATOR_ONE(htanh_approx, h2tanh_approx, fast_tanh(x))
GF_EMULATOR_BOTH(__hadd_rn, __hadd2_rn, x + y)
GF_EMULATOR_BOTH(__hsub_rn, __hsub2_rn, x - y)
GF_EMULATOR_BOTH(__hmul_rn, __hmul2_rn, x * y)
GF_EMULATOR_BOTH(__hadd_sat, __hadd2_sat, clamped_to_one(x + y))
GF_EMULATOR_BOTH(__hsub_sat, __hsub2_sat, clamped_to_one(x - y))
GF_EMULATOR_BOTH(__hmul_sat, __hmul2_sat, clamped_to_one(x * y))
GF_EMULATOR_BOTH(__hmax_nan, __hmax2_nan, x != x ? -x : y != y ? -y : __hmax(x, y))
GF_EMULATOR_BOTH(__hmin_nan, __hmin2_nan, x != x ? -x : y != y ? -y : __hmin(x, y))
#undef GF_EMULATOR_ONE
#undef GF_EMULATOR_BOTH

#define GF_EMULATOR_TWO(two, one) \
    GF_EMULATOR_16 GF_EMULATOR_H2 two(Float16x2<Format> x) { return {one(x.x), one(x.y)}; }
GF_EMULATOR_TWO(h2log, hlog)
GF_EMULATOR_TWO(h2log2, hlog2)
GF_EMULATOR_TWO(h2sqrt, hsqrt)
GF_EMULATOR_TWO(h2rsqrt, hrsqrt)
GF_EMULATOR_TWO(h2tanh, htanh)
GF_EMULATOR_TWO(operator-, -)
#undef GF_EMULATOR_TWO
GF_EMULATOR_16 GF_EMULATOR_H2 operator+(Float16x2<Format> x) { return x; }
#define GF_EMULATOR_ASSIGN(operation)                                                                    \
    GF_EMULATOR_16 __forceinline__ Float16x2<Format>& operator operation##=(Float16x2<Format>& x, Float16x2<Format> y) { \
        return x = x operation y;                                                                        \
    }
GF_EMULATOR_ASSIGN(+)
GF_EMULATOR_ASSIGN(-)
GF_EMULATOR_ASSIGN(*)
GF_EMULATOR_ASSIGN(/)
#undef GF_EMULATOR_ASSIGN
GF_EMULATOR_16 GF_EMULATOR_H& operator++(Float16<Format>& x) { return x += Float16<Format>(1.0f); }
GF_EMULATOR_16 GF_EMULATOR_H& operator--(Float16<Format>& x) { return x -= Float16<Format>(1.0f); }

GF_EMULATOR_16 GF_EMULATOR_H __hfma_sat(Float16<Format> x, Float16<Format> y, Float16<Format> z) {
    return clamped_to_one(__hfma(x, y, z));
}
GF_EMULATOR_16 GF_EMULATOR_H __hfma_relu(Float16<Format> x, Float16<Format> y, Float16<Format> z) {
    return without_negatives(__hfma(x, y, z));
}
GF_EMULATOR_16 GF_EMULATOR_H2 __hfma2_sat(Float16x2<Format> x, Float16x2<Format> y, Float16x2<Format> z) {
    return {__hfma_sat(x.x, y.x, z.x), __hfma_sat(x.y, y.y, z.y)};
}
GF_EMULATOR_16 GF_EMULATOR_H2 __hfma2_relu(Float16x2<Format> x, Float16x2<Format> y, Float16x2<Format> z) {
    return {__hfma_relu(x.x, y.x, z.x), __hfma_relu(x.y, y.y, z.y)};
}
// Complex numbers: x y + z.
GF_EMULATOR_16 GF_EMULATOR_H2 __hcmadd(Float16x2<Format> x, Float16x2<Format> y, Float16x2<Format> z) {
    const Float16<Format> real = __hfma(x.x, y.x, z.x), imaginary = __hfma(x.x, y.y, z.y);
    return {__hfma(-x.y, y.y, real), __hfma(x.y, y.x, imaginary)};
}
GF_EMULATOR_16 GF_EMULATOR_H2 __hisnan2(Float16x2<Format> x) {
    return {Float16<Format>(x.x != x.x ? 1.0f : 0.0f), Float16<Format>(x.y != x.y ? 1.0f : 0.0f)};
}

// A comparison, and its unordered form, which is true of a NaN: of one value, of two as 1.0 and 0.0, as masks, and of
// both at once.
#define GF_EMULATOR_COMPARE_TWO(name, comparison)                                                          \
    GF_EMULATOR_16 GF_EMULATOR_H2 __h##name##2(Float16x2<Format> a, Float16x2<Format> b) {                 \
        const auto holds = [](Float16<Format> x, Float16<Format> y) { return comparison; };                \
        return {Float16<Format>(holds(a.x, b.x) ? 1.0f : 0.0f), Float16<Format>(holds(a.y, b.y) ? 1.0f : 0.0f)}; \
    }                                                                                                      \
    GF_EMULATOR_16 __forceinline__ unsigned __h##name##2_mask(Float16x2<Format> a, Float16x2<Format> b) {  \
        const auto holds = [](Float16<Format> x, Float16<Format> y) { return comparison; };                \
        return (holds(a.x, b.x) ? 0xffffu : 0u) | (holds(a.y, b.y) ? 0xffff0000u : 0u);                    \
    }                                                                                                      \
    GF_EMULATOR_16 __forceinline__ bool __hb##name##2(Float16x2<Format> a, Float16x2<Format> b) {          \
        return __h##name##2_mask(a, b) == 0xffffffffu;                                                     \
    }
#define GF_EMULATOR_COMPARE(name, operation, ordered)                                                      \
    GF_EMULATOR_COMPARE_TWO(name, x operation y && (ordered))                                              \
    GF_EMULATOR_COMPARE_TWO(name##u, x operation y || x != x || y != y)                                    \
    GF_EMULATOR_16 __forceinline__ bool __h##name##u(Float16<Format> x, Float16<Format> y) {               \
        return x operation y || x != x || y != y;                                                          \
    }                                                                                                      \
    GF_EMULATOR_16 __forceinline__ bool operator operation(Float16x2<Format> a, Float16x2<Format> b) {     \
        return __hb##name##2(a, b);                                                                        \
    }
GF_EMULATOR_COMPARE(eq, ==, true)
GF_EMULATOR_COMPARE(ne, !=, x == x && y == y)
GF_EMULATOR_COMPARE(lt, <, true)
GF_EMULATOR_COMPARE(le, <=, true)
GF_EMULATOR_COMPARE(gt, >, true)
GF_EMULATOR_COMPARE(ge, >=, true)
#undef GF_EMULATOR_COMPARE
#undef GF_EMULATOR_COMPARE_TWO
#undef GF_EMULATOR_H
#undef GF_EMULATOR_H2
#undef GF_EMULATOR_16

}  // namespace gf_emulator

// Conversions by the names that a type has: `half` or `bfloat16`, and the mode that its own header does not give.
#define GF_EMULATOR_FROM_INTEGER(Narrow, Format, name, from, type)                                                   \
    __forceinline__ Narrow __##from##2##name##_rz(type x) { return gf_emulator::rounded_float16<Format>(gf_emulator::sticky_double(x), gf_emulator::Rounding::to_zero); } \
    __forceinline__ Narrow __##from##2##name##_ru(type x) { return gf_emulator::rounded_float16<Format>(gf_emulator::sticky_double(x), gf_emulator::Rounding::up); } \
    __forceinline__ Narrow __##from##2##name##_rd(type x) { return gf_emulator::rounded_float16<Format>(gf_emulator::sticky_double(x), gf_emulator::Rounding::down); }
#define GF_EMULATOR_FROM_INTEGER_RN(Narrow, name, from, type) \
    __forceinline__ Narrow __##from##2##name##_rn(type x) { return gf_emulator::sticky_double(x); }
#define GF_EMULATOR_INTO_INTEGER(Narrow, name, to, type, mode, rounded) \
    __forceinline__ type __##name##2##to##_##mode(Narrow x) { return gf_emulator::clamped<type>(__builtin_##rounded##f(float(x))); }
#define GF_EMULATOR_INTO_INTEGERS(Narrow, name, to, type)              \
    GF_EMULATOR_INTO_INTEGER(Narrow, name, to, type, rd, floor)        \
    GF_EMULATOR_INTO_INTEGER(Narrow, name, to, type, ru, ceil)
#define GF_EMULATOR_INTO_INTEGERS_NEAR(Narrow, name, to, type)         \
    GF_EMULATOR_INTO_INTEGER(Narrow, name, to, type, rn, rint)         \
    GF_EMULATOR_INTO_INTEGER(Narrow, name, to, type, rz, trunc)
#define GF_EMULATOR_CONVERSIONS(Narrow, Format, name)                                        \
    GF_EMULATOR_FROM_INTEGER(Narrow, Format, name, float, float)                             \
    GF_EMULATOR_FROM_INTEGER(Narrow, Format, name, int, int)                                 \
    GF_EMULATOR_FROM_INTEGER(Narrow, Format, name, uint, unsigned)                           \
    GF_EMULATOR_FROM_INTEGER(Narrow, Format, name, short, short)                             \
    GF_EMULATOR_FROM_INTEGER(Narrow, Format, name, ushort, unsigned short)                   \
    GF_EMULATOR_FROM_INTEGER(Narrow, Format, name, ll, long long)                            \
    GF_EMULATOR_FROM_INTEGER(Narrow, Format, name, ull, unsigned long long)                  \
    GF_EMULATOR_FROM_INTEGER_RN(Narrow, name, short, short)                                  \
    GF_EMULATOR_FROM_INTEGER_RN(Narrow, name, ushort, unsigned short)                        \
    GF_EMULATOR_FROM_INTEGER_RN(Narrow, name, ll, long long)                                 \
    GF_EMULATOR_FROM_INTEGER_RN(Narrow, name, ull, unsigned long long)                       \
    GF_EMULATOR_INTO_INTEGERS(Narrow, name, int, int)                                        \
    GF_EMULATOR_INTO_INTEGERS(Narrow, name, uint, unsigned)                                  \
    GF_EMULATOR_INTO_INTEGERS(Narrow, name, short, short)                                    \
    GF_EMULATOR_INTO_INTEGERS(Narrow, name, ushort, unsigned short)                          \
    GF_EMULATOR_INTO_INTEGERS(Narrow, name, ll, long long)                                   \
    GF_EMULATOR_INTO_INTEGERS(Narrow, name, ull, unsigned long long)                         \
    GF_EMULATOR_INTO_INTEGERS_NEAR(Narrow, name, uint, unsigned)                             \
    GF_EMULATOR_INTO_INTEGERS_NEAR(Narrow, name, short, short)                               \
    GF_EMULATOR_INTO_INTEGERS_NEAR(Narrow, name, ushort, unsigned short)                     \
    GF_EMULATOR_INTO_INTEGERS_NEAR(Narrow, name, ll, long long)                              \
    GF_EMULATOR_INTO_INTEGERS_NEAR(Narrow, name, ull, unsigned long long)                    \
    GF_EMULATOR_INTO_INTEGER(Narrow, name, char, signed char, rz, trunc)                     \
    GF_EMULATOR_INTO_INTEGER(Narrow, name, uchar, unsigned char, rz, trunc)
