// Stands in for CUDA's cuda_fp8.h: the e4m3 and e5m2 types, one, two and four wide, and the __nv_cvt_*
// functions between them and float, double, half and bfloat16. (Not e8m0.)
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "gf_emulator/float8.h"

using __nv_fp8_storage_t = unsigned char;
using __nv_fp8x2_storage_t = unsigned short;
using __nv_fp8x4_storage_t = unsigned;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

__forceinline__ __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturate,
                                                         __nv_fp8_interpretation_t format) {
    return format == __NV_E4M3 ? gf_emulator::E4m3Format::from_float(x, saturate == __NV_SATFINITE)
                               : gf_emulator::E5m2Format::from_float(x, saturate == __NV_SATFINITE);
}
__forceinline__ __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t saturate,
                                                          __nv_fp8_interpretation_t format) {
    const __nv_fp8_storage_t code = __nv_cvt_float_to_fp8(gf_emulator::round_to_odd(x), saturate, format);
    if (x == x) return code;
    // From a double, a NaN keeps its sign, and in e5m2 its two highest fraction bits.
    const auto bits = gf_emulator::bit_cast<std::uint64_t>(x);
    return __nv_fp8_storage_t((bits >> 56 & 0x80) |
                              (format == __NV_E4M3 ? 0x7f : 0x7e | unsigned(bits >> 50 & 3)));
}
__forceinline__ __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t saturate,
                                                           __nv_fp8_interpretation_t format) {
    return __nv_cvt_float_to_fp8(__half(x), saturate, format);
}
__forceinline__ __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw x,
                                                               __nv_saturation_t saturate,
                                                               __nv_fp8_interpretation_t format) {
    return __nv_cvt_float_to_fp8(__nv_bfloat16(x), saturate, format);
}

#define GF_EMULATOR_TO_FP8X2(name, type, one, first, second)                                            \
    __forceinline__ __nv_fp8x2_storage_t name(type x, __nv_saturation_t saturate,                       \
                                              __nv_fp8_interpretation_t format) {                       \
        return __nv_fp8x2_storage_t(one(first, saturate, format) | one(second, saturate, format) << 8); \
    }
GF_EMULATOR_TO_FP8X2(__nv_cvt_float2_to_fp8x2, float2, __nv_cvt_float_to_fp8, x.x, x.y)
GF_EMULATOR_TO_FP8X2(__nv_cvt_double2_to_fp8x2, double2, __nv_cvt_double_to_fp8, x.x, x.y)
GF_EMULATOR_TO_FP8X2(__nv_cvt_halfraw2_to_fp8x2, __half2_raw, __nv_cvt_halfraw_to_fp8, __half_raw{x.x},
                     __half_raw{x.y})
GF_EMULATOR_TO_FP8X2(__nv_cvt_bfloat16raw2_to_fp8x2, __nv_bfloat162_raw, __nv_cvt_bfloat16raw_to_fp8,
                     __nv_bfloat16_raw{x.x}, __nv_bfloat16_raw{x.y})
#undef GF_EMULATOR_TO_FP8X2

__forceinline__ __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t format) {
    const float value =
        format == __NV_E4M3 ? gf_emulator::E4m3Format::to_float(x) : gf_emulator::E5m2Format::to_float(x);
    return value == value ? __half_raw(__half(value)) : __half_raw{0x7fff};
}
__forceinline__ __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x,
                                                       __nv_fp8_interpretation_t format) {
    return {__nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t(x), format).x,
            __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t(x >> 8), format).x};
}

namespace gf_emulator {

// Constructors saturate, as CUDA's do; every conversion out is exact but to an integer, which truncates.
template <class Format_, __nv_fp8_interpretation_t interpretation>
struct Float8 {
    using Format = Format_;
    static constexpr __nv_fp8_interpretation_t format = interpretation;
    __nv_fp8_storage_t __x;

    Float8() = default;
    explicit __forceinline__ Float8(float x) : __x(Format::from_float(x, true)) {}
    explicit __forceinline__ Float8(double x) : __x(__nv_cvt_double_to_fp8(x, __NV_SATFINITE, format)) {}
    explicit __forceinline__ Float8(__half x) : Float8(float(x)) {}
    explicit __forceinline__ Float8(__nv_bfloat16 x) : Float8(float(x)) {}
    template <class Integer, class = std::enable_if_t<std::is_integral_v<Integer>>>
    explicit __forceinline__ Float8(Integer x) : Float8(round_to_odd(double(x))) {}

    explicit __forceinline__ operator float() const { return Format::to_float(__x); }
    explicit __forceinline__ operator double() const { return Format::to_float(__x); }
    explicit __forceinline__ operator __half() const { return __nv_cvt_fp8_to_halfraw(__x, format); }
    explicit __forceinline__ operator __nv_bfloat16() const { return Format::to_float(__x); }
    explicit __forceinline__ operator bool() const { return (__x & 0x7f) != 0; }
    explicit __forceinline__ operator int() const { return __float2int_rz(float(*this)); }
    explicit __forceinline__ operator unsigned() const { return __float2uint_rz(float(*this)); }
};

template <class One>
struct __attribute__((aligned(2))) Float8x2 {
    static constexpr __nv_fp8_interpretation_t format = One::format;
    __nv_fp8x2_storage_t __x;

    Float8x2() = default;
    explicit __forceinline__ Float8x2(float2 x) : __x(__nv_cvt_float2_to_fp8x2(x, __NV_SATFINITE, format)) {}
    explicit __forceinline__ Float8x2(double2 x)
        : __x(__nv_cvt_double2_to_fp8x2(x, __NV_SATFINITE, format)) {}
    explicit __forceinline__ Float8x2(__half2 x) : Float8x2(float2{x.x, x.y}) {}
    explicit __forceinline__ Float8x2(__nv_bfloat162 x) : Float8x2(float2{x.x, x.y}) {}

    explicit __forceinline__ operator float2() const {
        return {One::Format::to_float(__nv_fp8_storage_t(__x)),
                One::Format::to_float(__nv_fp8_storage_t(__x >> 8))};
    }
    explicit __forceinline__ operator __half2() const { return __nv_cvt_fp8x2_to_halfraw2(__x, format); }
};

template <class One>
struct __attribute__((aligned(4))) Float8x4 {
    static constexpr __nv_fp8_interpretation_t format = One::format;
    __nv_fp8x4_storage_t __x;

    Float8x4() = default;
    explicit __forceinline__ Float8x4(float4 x)
        : Float8x4(Float8x2<One>(float2{x.x, x.y}), Float8x2<One>(float2{x.z, x.w})) {}
    explicit __forceinline__ Float8x4(double4 x)
        : Float8x4(Float8x2<One>(double2{x.x, x.y}), Float8x2<One>(double2{x.z, x.w})) {}
    __forceinline__ Float8x4(__half2 low, __half2 high) : Float8x4(Float8x2<One>(low), Float8x2<One>(high)) {}
    __forceinline__ Float8x4(__nv_bfloat162 low, __nv_bfloat162 high)
        : Float8x4(Float8x2<One>(low), Float8x2<One>(high)) {}

    explicit __forceinline__ operator float4() const {
        const auto value = [this](int i) { return One::Format::to_float(__nv_fp8_storage_t(__x >> 8 * i)); };
        return {value(0), value(1), value(2), value(3)};
    }

private:
    __forceinline__ Float8x4(Float8x2<One> low, Float8x2<One> high)
        : __x(low.__x | unsigned(high.__x) << 16) {}
};

}  // namespace gf_emulator

using __nv_fp8_e4m3 = gf_emulator::Float8<gf_emulator::E4m3Format, __NV_E4M3>;
using __nv_fp8_e5m2 = gf_emulator::Float8<gf_emulator::E5m2Format, __NV_E5M2>;
using __nv_fp8x2_e4m3 = gf_emulator::Float8x2<__nv_fp8_e4m3>;
using __nv_fp8x2_e5m2 = gf_emulator::Float8x2<__nv_fp8_e5m2>;
using __nv_fp8x4_e4m3 = gf_emulator::Float8x4<__nv_fp8_e4m3>;
using __nv_fp8x4_e5m2 = gf_emulator::Float8x4<__nv_fp8_e5m2>;

namespace gf_emulator {

template <class T>
constexpr Element float8_element() {
    static_assert(std::is_same_v<T, __nv_fp8_e4m3> || std::is_same_v<T, __nv_fp8_e5m2>,
                  "mma_m16n8k32 takes __nv_fp8_e4m3 or __nv_fp8_e5m2");
    return std::is_same_v<T, __nv_fp8_e4m3> ? Element::float8_e4m3 : Element::float8_e5m2;
}

}  // namespace gf_emulator
