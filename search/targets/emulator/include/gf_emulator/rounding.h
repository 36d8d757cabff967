// Arithmetic and conversions with a rounding mode in their name (CUDA Math API, "Single Precision Intrinsics", "Double
// Precision Intrinsics" and "Type Casting Intrinsics"). To nearest is the host's own rounding; the others are computed
// by the runtime under the processor's rounding mode.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/mathematics.h"
#include "gf_emulator/qualifiers.h"

namespace gf_emulator {

// The value, which the compiler fuses with no other operation.
template <class Real>
__forceinline__ Real unfused(Real value) {
    asm("" : "+x"(value));
    return value;
}

// Clamped; NaN is 0 where a float becomes 32 bits, else the sign bit alone (PTX ISA, "cvt").
template <class To, class From>
__forceinline__ To clamped(From rounded) {
    constexpr To low = std::is_signed_v<To> ? To(To(1) << (sizeof(To) * 8 - 1)) : To(0);
    constexpr To high = To(~low);
    if (rounded != rounded)
        return sizeof(From) == 8 || sizeof(To) == 8 ? To(std::make_unsigned_t<To>(1) << (sizeof(To) * 8 - 1)) : To(0);
    if (rounded <= From(low)) return low;
    if (rounded >= From(high)) return high;
    return To(rounded);
}

}  // namespace gf_emulator

#define GF_EMULATOR_ROUNDED(name, mode)                                                                           \
    __forceinline__ float __fadd_##name(float x, float y) { return gf_emulator_rounded_float(gf_emulator::RoundedOperation::add, gf_emulator::Rounding::mode, x, y, 0); } \
    __forceinline__ float __fsub_##name(float x, float y) { return __fadd_##name(x, -y); }                       \
    __forceinline__ float __fmul_##name(float x, float y) { return gf_emulator_rounded_float(gf_emulator::RoundedOperation::multiply, gf_emulator::Rounding::mode, x, y, 0); } \
    __forceinline__ float __fmaf_##name(float x, float y, float z) { return gf_emulator_rounded_float(gf_emulator::RoundedOperation::multiply_add, gf_emulator::Rounding::mode, x, y, z); } \
    __forceinline__ float __fdiv_##name(float x, float y) { return gf_emulator_rounded_float(gf_emulator::RoundedOperation::divide, gf_emulator::Rounding::mode, x, y, 0); } \
    __forceinline__ float __frcp_##name(float x) { return __fdiv_##name(1.0f, x); }                              \
    __forceinline__ float __fsqrt_##name(float x) { return gf_emulator_rounded_float(gf_emulator::RoundedOperation::square_root, gf_emulator::Rounding::mode, x, 0, 0); } \
    __forceinline__ double __dadd_##name(double x, double y) { return gf_emulator_rounded_double(gf_emulator::RoundedOperation::add, gf_emulator::Rounding::mode, x, y, 0); } \
    __forceinline__ double __dsub_##name(double x, double y) { return __dadd_##name(x, -y); }                    \
    __forceinline__ double __dmul_##name(double x, double y) { return gf_emulator_rounded_double(gf_emulator::RoundedOperation::multiply, gf_emulator::Rounding::mode, x, y, 0); } \
    __forceinline__ double __fma_##name(double x, double y, double z) { return gf_emulator_rounded_double(gf_emulator::RoundedOperation::multiply_add, gf_emulator::Rounding::mode, x, y, z); } \
    __forceinline__ double __ddiv_##name(double x, double y) { return gf_emulator_rounded_double(gf_emulator::RoundedOperation::divide, gf_emulator::Rounding::mode, x, y, 0); } \
    __forceinline__ double __drcp_##name(double x) { return __ddiv_##name(1.0, x); }                             \
    __forceinline__ double __dsqrt_##name(double x) { return gf_emulator_rounded_double(gf_emulator::RoundedOperation::square_root, gf_emulator::Rounding::mode, x, 0, 0); } \
    __forceinline__ float __double2float_##name(double x) { return gf_emulator_rounded_to_float(gf_emulator::Rounding::mode, x); } \
    __forceinline__ float __ll2float_##name(long long x) { return gf_emulator_rounded_signed(gf_emulator::Rounding::mode, x); } \
    __forceinline__ float __ull2float_##name(unsigned long long x) { return gf_emulator_rounded_unsigned(gf_emulator::Rounding::mode, x); } \
    __forceinline__ float __int2float_##name(int x) { return __double2float_##name(double(x)); }                 \
    __forceinline__ float __uint2float_##name(unsigned x) { return __double2float_##name(double(x)); }           \
    __forceinline__ double __ll2double_##name(long long x) { return gf_emulator_rounded_signed_double(gf_emulator::Rounding::mode, x); } \
    __forceinline__ double __ull2double_##name(unsigned long long x) { return gf_emulator_rounded_unsigned_double(gf_emulator::Rounding::mode, x); }
GF_EMULATOR_ROUNDED(rz, to_zero)
GF_EMULATOR_ROUNDED(ru, up)
GF_EMULATOR_ROUNDED(rd, down)
#undef GF_EMULATOR_ROUNDED

__forceinline__ double __dadd_rn(double x, double y) { return gf_emulator::unfused(x) + gf_emulator::unfused(y); }
__forceinline__ double __dsub_rn(double x, double y) { return gf_emulator::unfused(x) - gf_emulator::unfused(y); }
__forceinline__ double __dmul_rn(double x, double y) { return gf_emulator::unfused(x * y); }
__forceinline__ double __fma_rn(double x, double y, double z) { return __builtin_fma(x, y, z); }
__forceinline__ double __ddiv_rn(double x, double y) { return x / y; }
__forceinline__ double __drcp_rn(double x) { return 1.0 / x; }
__forceinline__ double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
__forceinline__ float __double2float_rn(double x) { return float(x); }
__forceinline__ float __ll2float_rn(long long x) { return float(x); }
__forceinline__ float __ull2float_rn(unsigned long long x) { return float(x); }
__forceinline__ double __ll2double_rn(long long x) { return double(x); }
__forceinline__ double __ull2double_rn(unsigned long long x) { return double(x); }
__forceinline__ double __int2double_rn(int x) { return double(x); }
__forceinline__ double __uint2double_rn(unsigned x) { return double(x); }

#define GF_EMULATOR_TO_INTEGER(from, real, suffix, to, type, mode, rounded) \
    __forceinline__ type __##from##2##to##_##mode(real x) { return gf_emulator::clamped<type>(__builtin_##rounded##suffix(x)); }
#define GF_EMULATOR_TO_INTEGERS(mode, rounded)                                          \
    GF_EMULATOR_TO_INTEGER(float, float, f, ll, long long, mode, rounded)               \
    GF_EMULATOR_TO_INTEGER(float, float, f, ull, unsigned long long, mode, rounded)     \
    GF_EMULATOR_TO_INTEGER(double, double, , int, int, mode, rounded)                   \
    GF_EMULATOR_TO_INTEGER(double, double, , uint, unsigned, mode, rounded)             \
    GF_EMULATOR_TO_INTEGER(double, double, , ll, long long, mode, rounded)              \
    GF_EMULATOR_TO_INTEGER(double, double, , ull, unsigned long long, mode, rounded)
GF_EMULATOR_TO_INTEGERS(rn, rint)
GF_EMULATOR_TO_INTEGERS(rz, trunc)
GF_EMULATOR_TO_INTEGERS(rd, floor)
GF_EMULATOR_TO_INTEGERS(ru, ceil)
GF_EMULATOR_TO_INTEGER(float, float, f, uint, unsigned, rd, floor)
GF_EMULATOR_TO_INTEGER(float, float, f, uint, unsigned, ru, ceil)
#undef GF_EMULATOR_TO_INTEGERS
#undef GF_EMULATOR_TO_INTEGER
