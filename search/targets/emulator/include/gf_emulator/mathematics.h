// CUDA's maths functions. The fast forms (`__expf` ...) give the correctly rounded result here; a device's
// lie within a few units in the last place of it. Names that glibc declares for itself are macros.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/qualifiers.h"

namespace gf_emulator {

// Counts one operation of the special-function unit, in the counted build only.
// A constant in one build is one in each, so that no text can tell them apart.
#ifdef GF_EMULATOR_COUNTED
__forceinline__ constexpr void special() {
    if (!__builtin_is_constant_evaluated()) gf_emulator_special_function();
}
#else
__forceinline__ constexpr void special() {}
#endif

__forceinline__ float fast_exp(float x) {
    special();
    return ::expf(x);
}
__forceinline__ float fast_exp2(float x) {
    special();
    return ::exp2f(x);
}
__forceinline__ float fast_exp10(float x) {
    special();
    return ::exp10f(x);
}
__forceinline__ float fast_log(float x) {
    special();
    return ::logf(x);
}
__forceinline__ float fast_log2(float x) {
    special();
    return ::log2f(x);
}
__forceinline__ float fast_log10(float x) {
    special();
    return ::log10f(x);
}
__forceinline__ float fast_sin(float x) {
    special();
    return ::sinf(x);
}
__forceinline__ float fast_cos(float x) {
    special();
    return ::cosf(x);
}
__forceinline__ float fast_tan(float x) {
    special();
    return ::tanf(x);
}
__forceinline__ float fast_pow(float x, float y) {
    special();
    special();
    return ::powf(x, y);
}
__forceinline__ float fast_tanh(float x) {
    special();
    return ::tanhf(x);
}

// Subnormals become zeros, as the device's .ftz instructions have it.
__forceinline__ float flushed(float x) {
    return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}

template <class To, class From>
__forceinline__ To bit_cast(From value) {
    static_assert(sizeof(To) == sizeof(From));
    To result{};
    __builtin_memcpy(&result, &value, sizeof result);
    return result;
}

template <class To>
__forceinline__ To saturating_cast(float rounded) {
    // The device clamps and turns NaN into 0 where the host's conversion is undefined.
    constexpr To low = std::is_signed_v<To> ? To(To(1) << (sizeof(To) * 8 - 1)) : To(0);
    constexpr To high = To(~low);
    if (rounded != rounded) return 0;
    if (rounded <= float(low)) return low;
    if (rounded >= float(high)) return high;
    return To(rounded);
}

}  // namespace gf_emulator

// Names without arguments: a text's own variable of such a name is then renamed like its uses.
#define __expf gf_emulator_fast_expf
#define __exp10f gf_emulator_fast_exp10f
#define __logf gf_emulator_fast_logf
#define __log2f gf_emulator_fast_log2f
#define __log10f gf_emulator_fast_log10f
#define __sinf gf_emulator_fast_sinf
#define __cosf gf_emulator_fast_cosf
#define __tanf gf_emulator_fast_tanf
#define __tanhf gf_emulator_fast_tanhf
#define __powf gf_emulator_fast_powf
__forceinline__ float __expf(float x) { return gf_emulator::fast_exp(x); }
__forceinline__ float __exp10f(float x) { return gf_emulator::fast_exp10(x); }
__forceinline__ float __logf(float x) { return gf_emulator::fast_log(x); }
__forceinline__ float __log2f(float x) { return gf_emulator::fast_log2(x); }
__forceinline__ float __log10f(float x) { return gf_emulator::fast_log10(x); }
__forceinline__ float __sinf(float x) { return gf_emulator::fast_sin(x); }
__forceinline__ float __cosf(float x) { return gf_emulator::fast_cos(x); }
__forceinline__ float __tanf(float x) { return gf_emulator::fast_tan(x); }
__forceinline__ float __tanhf(float x) { return gf_emulator::fast_tanh(x); }
__forceinline__ float __powf(float x, float y) { return gf_emulator::fast_pow(x, y); }

__forceinline__ float rsqrtf(float x) {
    gf_emulator::special();
    return 1.0f / __builtin_sqrtf(x);
}
__forceinline__ double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
__forceinline__ float __frsqrt_rn(float x) {
    gf_emulator::special();
    return float(1.0 / __builtin_sqrt(double(x)));
}
__forceinline__ float __frcp_rn(float x) {
    gf_emulator::special();
    return 1.0f / x;
}
__forceinline__ float __fsqrt_rn(float x) {
    gf_emulator::special();
    return __builtin_sqrtf(x);
}
__forceinline__ float __fdiv_rn(float x, float y) {
    gf_emulator::special();
    return x / y;
}
__forceinline__ float __fdividef(float x, float y) {
    gf_emulator::special();
    return x / y;
}
__forceinline__ float fdividef(float x, float y) { return __fdividef(x, y); }
// Never fused with a product that an operand is.
__forceinline__ float __fadd_rn(float x, float y) {
    asm("" : "+x"(x), "+x"(y));
    return x + y;
}
__forceinline__ float __fsub_rn(float x, float y) {
    asm("" : "+x"(x), "+x"(y));
    return x - y;
}
__forceinline__ float __fmul_rn(float x, float y) {
    float product = x * y;
    asm("" : "+x"(product));
    return product;
}
__forceinline__ float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
__forceinline__ float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
__forceinline__ float normcdff(float x) { return 0.5f * ::erfcf(x * -0.70710678118654752f); }

#define GF_EMULATOR_MIN_MAX(left, right, type)                                                            \
    __forceinline__ type min(left x, right y) { return (type)y < (type)x ? (type)y : (type)x; } \
    __forceinline__ type max(left x, right y) { return (type)x < (type)y ? (type)y : (type)x; }
GF_EMULATOR_MIN_MAX(int, int, int)
GF_EMULATOR_MIN_MAX(unsigned, unsigned, unsigned)
GF_EMULATOR_MIN_MAX(int, unsigned, unsigned)
GF_EMULATOR_MIN_MAX(unsigned, int, unsigned)
GF_EMULATOR_MIN_MAX(long, long, long)
GF_EMULATOR_MIN_MAX(unsigned long, unsigned long, unsigned long)
GF_EMULATOR_MIN_MAX(long, unsigned long, unsigned long)
GF_EMULATOR_MIN_MAX(unsigned long, long, unsigned long)
GF_EMULATOR_MIN_MAX(long long, long long, long long)
GF_EMULATOR_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
GF_EMULATOR_MIN_MAX(long long, unsigned long long, unsigned long long)
GF_EMULATOR_MIN_MAX(unsigned long long, long long, unsigned long long)
#undef GF_EMULATOR_MIN_MAX
// A NaN yields to the other operand, as the device's instruction has it; libm's form is a call.
__forceinline__ float min(float x, float y) { return x < y || y != y ? x : y; }
__forceinline__ float max(float x, float y) { return x > y || y != y ? x : y; }
__forceinline__ float gf_emulator_fminf(float x, float y) { return min(x, y); }
__forceinline__ float gf_emulator_fmaxf(float x, float y) { return max(x, y); }
#define fminf gf_emulator_fminf
#define fmaxf gf_emulator_fmaxf
#include "gf_emulator/overloads.h"
__forceinline__ double min(double x, double y) { return __builtin_fmin(x, y); }
__forceinline__ double max(double x, double y) { return __builtin_fmax(x, y); }
__forceinline__ double min(float x, double y) { return min(double(x), y); }
__forceinline__ double min(double x, float y) { return min(x, double(y)); }
__forceinline__ double max(float x, double y) { return max(double(x), y); }
__forceinline__ double max(double x, float y) { return max(x, double(y)); }

__forceinline__ int __float_as_int(float x) { return gf_emulator::bit_cast<int>(x); }
__forceinline__ unsigned __float_as_uint(float x) { return gf_emulator::bit_cast<unsigned>(x); }
__forceinline__ float __int_as_float(int x) { return gf_emulator::bit_cast<float>(x); }
__forceinline__ float __uint_as_float(unsigned x) { return gf_emulator::bit_cast<float>(x); }
__forceinline__ long long __double_as_longlong(double x) { return gf_emulator::bit_cast<long long>(x); }
__forceinline__ double __longlong_as_double(long long x) { return gf_emulator::bit_cast<double>(x); }

__forceinline__ int __float2int_rn(float x) { return gf_emulator::saturating_cast<int>(__builtin_rintf(x)); }
__forceinline__ int __float2int_rz(float x) { return gf_emulator::saturating_cast<int>(__builtin_truncf(x)); }
__forceinline__ int __float2int_rd(float x) { return gf_emulator::saturating_cast<int>(__builtin_floorf(x)); }
__forceinline__ int __float2int_ru(float x) { return gf_emulator::saturating_cast<int>(__builtin_ceilf(x)); }
__forceinline__ unsigned __float2uint_rn(float x) {
    return gf_emulator::saturating_cast<unsigned>(__builtin_rintf(x));
}
__forceinline__ unsigned __float2uint_rz(float x) {
    return gf_emulator::saturating_cast<unsigned>(__builtin_truncf(x));
}
__forceinline__ float __int2float_rn(int x) { return float(x); }
__forceinline__ float __uint2float_rn(unsigned x) { return float(x); }

__forceinline__ int __popc(unsigned x) { return __builtin_popcount(x); }
__forceinline__ int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
__forceinline__ int __ffs(int x) { return __builtin_ffs(x); }
__forceinline__ int __ffsll(long long x) { return __builtin_ffsll(x); }
__forceinline__ int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
__forceinline__ int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
__forceinline__ unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; bit++) reversed |= (x >> bit & 1u) << (31 - bit);
    return reversed;
}
__forceinline__ unsigned __umulhi(unsigned x, unsigned y) { return unsigned(std::uint64_t(x) * y >> 32); }
__forceinline__ int __mulhi(int x, int y) { return int(std::int64_t(x) * y >> 32); }
__forceinline__ unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const std::uint64_t bytes = std::uint64_t(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned pick = selector >> (4 * i) & 0xf;
        unsigned byte = unsigned(bytes >> (8 * (pick & 7))) & 0xff;
        if (pick & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}
__forceinline__ unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return unsigned((std::uint64_t(high) << 32 | low) << (shift & 31) >> 32);
}
__forceinline__ unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return unsigned((std::uint64_t(high) << 32 | low) >> (shift & 31));
}
