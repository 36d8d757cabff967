// __half and __nv_bfloat16 as one class over their format, and their two-wide forms. Every operation is
// computed in float32 and rounded once; for + - * / that equals the directly rounded result (24 >= 2 * 11 + 2
// significand bits).
#pragma once
#include "gf_emulator/float_formats.h"
#include "gf_emulator/mathematics.h"
#include "gf_emulator/qualifiers.h"
#include "gf_emulator/vector_types.h"

namespace gf_emulator {

template <class Format>
struct Float16 {
    std::uint16_t bits;

    Float16() = default;
    __forceinline__ Float16(float value) : bits(Format::from_float(value)) {}
    __forceinline__ Float16(double value) : bits(Format::from_float(round_to_odd(value))) {}
    template <class Integer, class = std::enable_if_t<std::is_integral_v<Integer>>>
    __forceinline__ Float16(Integer value) : bits(Format::from_float(round_to_odd(double(value)))) {}
    static __forceinline__ Float16 from_bits(std::uint16_t bits) {
        Float16 result;
        result.bits = bits;
        return result;
    }
    __forceinline__ Float16(typename Format::Raw raw) : bits(raw.x) {}
    __forceinline__ operator float() const { return Format::to_float(bits); }
    __forceinline__ operator typename Format::Raw() const { return {bits}; }

    __forceinline__ Float16& operator+=(Float16 other) { return *this = *this + other; }
    __forceinline__ Float16& operator-=(Float16 other) { return *this = *this - other; }
    __forceinline__ Float16& operator*=(Float16 other) { return *this = *this * other; }
    __forceinline__ Float16& operator/=(Float16 other) { return *this = *this / other; }
    // As the device has it, a NaN turns into the canonical one.
    __forceinline__ Float16 operator-() const {
        return *this != *this ? Float16(float(*this)) : from_bits(bits ^ 0x8000u);
    }

    // Hidden friends: found for arguments of this type, and then the others convert to it as on the device.
    friend __forceinline__ Float16 operator+(Float16 a, Float16 b) { return float(a) + float(b); }
    friend __forceinline__ Float16 operator-(Float16 a, Float16 b) { return float(a) - float(b); }
    friend __forceinline__ Float16 operator*(Float16 a, Float16 b) { return float(a) * float(b); }
    friend __forceinline__ Float16 operator/(Float16 a, Float16 b) { return float(a) / float(b); }
    friend __forceinline__ bool operator==(Float16 a, Float16 b) { return float(a) == float(b); }
    friend __forceinline__ bool operator!=(Float16 a, Float16 b) { return float(a) != float(b); }
    friend __forceinline__ bool operator<(Float16 a, Float16 b) { return float(a) < float(b); }
    friend __forceinline__ bool operator>(Float16 a, Float16 b) { return float(a) > float(b); }
    friend __forceinline__ bool operator<=(Float16 a, Float16 b) { return float(a) <= float(b); }
    friend __forceinline__ bool operator>=(Float16 a, Float16 b) { return float(a) >= float(b); }

    friend __forceinline__ Float16 __hadd(Float16 a, Float16 b) { return a + b; }
    friend __forceinline__ Float16 __hsub(Float16 a, Float16 b) { return a - b; }
    friend __forceinline__ Float16 __hmul(Float16 a, Float16 b) { return a * b; }
    friend __forceinline__ Float16 __hdiv(Float16 a, Float16 b) { return a / b; }
    friend __forceinline__ Float16 __hneg(Float16 a) { return -a; }
    friend __forceinline__ Float16 __habs(Float16 a) {
        return a != a ? Float16(float(a)) : from_bits(a.bits & 0x7fffu);
    }
    friend __forceinline__ Float16 __hfma(Float16 a, Float16 b, Float16 c) {
        return multiply_add_to_odd(float(a), float(b), float(c));
    }
    // +0 is larger than -0 (CUDA Math API, "__hmax").
    friend __forceinline__ Float16 __hmax(Float16 a, Float16 b) {
        return a == b ? from_bits(a.bits & b.bits) : Float16(max(float(a), float(b)));
    }
    friend __forceinline__ Float16 __hmin(Float16 a, Float16 b) {
        return a == b ? from_bits(a.bits | b.bits) : Float16(min(float(a), float(b)));
    }
    friend __forceinline__ bool __heq(Float16 a, Float16 b) { return a == b; }
    friend __forceinline__ bool __hne(Float16 a, Float16 b) { return a != b; }
    friend __forceinline__ bool __hlt(Float16 a, Float16 b) { return a < b; }
    friend __forceinline__ bool __hle(Float16 a, Float16 b) { return a <= b; }
    friend __forceinline__ bool __hgt(Float16 a, Float16 b) { return a > b; }
    friend __forceinline__ bool __hge(Float16 a, Float16 b) { return a >= b; }
    friend __forceinline__ bool __hisnan(Float16 a) { return a != a; }
    friend __forceinline__ int __hisinf(Float16 a) {
        return __builtin_isinf(float(a)) ? (a.bits & 0x8000u ? -1 : 1) : 0;
    }
    friend __forceinline__ Float16 hexp(Float16 a) { return fast_exp(a); }
    friend __forceinline__ Float16 hexp2(Float16 a) { return fast_exp2(a); }
    friend __forceinline__ Float16 hlog(Float16 a) { return fast_log(a); }
    friend __forceinline__ Float16 hlog2(Float16 a) { return fast_log2(a); }
    friend __forceinline__ Float16 hsqrt(Float16 a) { return __fsqrt_rn(a); }
    friend __forceinline__ Float16 hrsqrt(Float16 a) { return rsqrtf(a); }
    friend __forceinline__ Float16 hrcp(Float16 a) { return __frcp_rn(a); }
    friend __forceinline__ Float16 htanh(Float16 a) { return fast_tanh(a); }
};

template <class Format>
struct __attribute__((aligned(4))) Float16x2 {
    using Element = Float16<Format>;
    Element x, y;

    Float16x2() = default;
    __forceinline__ Float16x2(Element first, Element second) : x(first), y(second) {}
    __forceinline__ Float16x2(typename Format::Raw2 raw)
        : x(Element::from_bits(raw.x)), y(Element::from_bits(raw.y)) {}
    __forceinline__ operator typename Format::Raw2() const { return {x.bits, y.bits}; }

    friend __forceinline__ Float16x2 operator+(Float16x2 a, Float16x2 b) { return {a.x + b.x, a.y + b.y}; }
    friend __forceinline__ Float16x2 operator-(Float16x2 a, Float16x2 b) { return {a.x - b.x, a.y - b.y}; }
    friend __forceinline__ Float16x2 operator*(Float16x2 a, Float16x2 b) { return {a.x * b.x, a.y * b.y}; }
    friend __forceinline__ Float16x2 operator/(Float16x2 a, Float16x2 b) { return {a.x / b.x, a.y / b.y}; }
    friend __forceinline__ Float16x2 __hadd2(Float16x2 a, Float16x2 b) { return a + b; }
    friend __forceinline__ Float16x2 __hsub2(Float16x2 a, Float16x2 b) { return a - b; }
    friend __forceinline__ Float16x2 __hmul2(Float16x2 a, Float16x2 b) { return a * b; }
    friend __forceinline__ Float16x2 __h2div(Float16x2 a, Float16x2 b) { return a / b; }
    friend __forceinline__ Float16x2 __hneg2(Float16x2 a) { return {-a.x, -a.y}; }
    friend __forceinline__ Float16x2 __habs2(Float16x2 a) { return {__habs(a.x), __habs(a.y)}; }
    friend __forceinline__ Float16x2 __hfma2(Float16x2 a, Float16x2 b, Float16x2 c) {
        return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
    }
    friend __forceinline__ Float16x2 __hmax2(Float16x2 a, Float16x2 b) {
        return {__hmax(a.x, b.x), __hmax(a.y, b.y)};
    }
    friend __forceinline__ Float16x2 __hmin2(Float16x2 a, Float16x2 b) {
        return {__hmin(a.x, b.x), __hmin(a.y, b.y)};
    }
    friend __forceinline__ Float16x2 h2exp(Float16x2 a) { return {hexp(a.x), hexp(a.y)}; }
    friend __forceinline__ Float16x2 h2exp2(Float16x2 a) { return {hexp2(a.x), hexp2(a.y)}; }
    friend __forceinline__ Float16x2 h2rcp(Float16x2 a) { return {hrcp(a.x), hrcp(a.y)}; }
    friend __forceinline__ float __low2float(Float16x2 a) { return a.x; }
    friend __forceinline__ float __high2float(Float16x2 a) { return a.y; }
};

}  // namespace gf_emulator
