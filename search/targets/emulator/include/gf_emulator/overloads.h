// C's mathematics with the overloads that NVRTC declares: a function for float and one for double. C++'s forms for
// integers are in namespace std alone. Otherwise the type of `pow(x, 2)`, or whether `sin(1)` is ambiguous, would tell
// the emulator from a GPU. The functions are ours, since a compiler takes its own of these names for constant expressions,
// which NVRTC does not. overload_names.h gives them their names. programs.h has what nvcc declares beyond this.
#pragma once
#include "gf_emulator/qualifiers.h"

namespace gf_emulator {

template <class T>
using Whole = std::enable_if_t<std::is_integral_v<T>, int>;
// Neither two floats nor two doubles, which have functions of their own.
template <class T, class U>
using Mixed = std::enable_if_t<std::is_arithmetic_v<T> && std::is_arithmetic_v<U> &&
                                   !(std::is_same_v<T, U> && std::is_floating_point_v<T>),
                               int>;

// Functions that a GPU's special-function unit computes are counted by their names for float alone. The call that counts
// one keeps a compiler from using a loaded value again.
#define GF_EMULATOR_SPECIAL gf_emulator::special();
#define GF_EMULATOR_PLAIN

}  // namespace gf_emulator

#define GF_EMULATOR_1(name, result, single, kind)                                                                     \
    __forceinline__ result gf_emulator_##name(double x) { return __builtin_##name(x); }                               \
    __forceinline__ single gf_emulator_##name##f(float x) {                                                           \
        kind return __builtin_##name##f(x);                                                                           \
    }                                                                                                                 \
    __forceinline__ single gf_emulator_##name(float x) { return __builtin_##name##f(x); }                             \
    namespace std {                                                                                                   \
    using ::gf_emulator_##name, ::gf_emulator_##name##f;                                                              \
    template <class T, gf_emulator::Whole<T> = 0>                                                                     \
    __forceinline__ result gf_emulator_##name(T x) {                                                                  \
        return __builtin_##name(double(x));                                                                           \
    }                                                                                                                 \
    }
#define GF_EMULATOR_2(name)                                                                                           \
    __forceinline__ double gf_emulator_##name(double x, double y) { return __builtin_##name(x, y); }                  \
    __forceinline__ float gf_emulator_##name##f(float x, float y) { return __builtin_##name##f(x, y); }               \
    __forceinline__ float gf_emulator_##name(float x, float y) { return __builtin_##name##f(x, y); }                  \
    GF_EMULATOR_MIXED(name)
#define GF_EMULATOR_MIXED(name)                                                                                       \
    namespace std {                                                                                                   \
    using ::gf_emulator_##name, ::gf_emulator_##name##f;                                                              \
    template <class T, class U, gf_emulator::Mixed<T, U> = 0>                                                         \
    __forceinline__ double gf_emulator_##name(T x, U y) {                                                             \
        return ::gf_emulator_##name(double(x), double(y));                                                            \
    }                                                                                                                 \
    }
#define GF_EMULATOR_SCALED(name, exponent)                                                                            \
    __forceinline__ double gf_emulator_##name(double x, exponent y) { return __builtin_##name(x, y); }                \
    __forceinline__ float gf_emulator_##name##f(float x, exponent y) { return __builtin_##name##f(x, y); }            \
    __forceinline__ float gf_emulator_##name(float x, exponent y) { return __builtin_##name##f(x, y); }               \
    namespace std {                                                                                                   \
    using ::gf_emulator_##name, ::gf_emulator_##name##f;                                                              \
    template <class T, gf_emulator::Whole<T> = 0>                                                                     \
    __forceinline__ double gf_emulator_##name(T x, exponent y) {                                                      \
        return __builtin_##name(double(x), y);                                                                        \
    }                                                                                                                 \
    }
#define GF_EMULATOR_ASKS(name)                                                                                        \
    __forceinline__ int gf_emulator_##name(float x) { return bool(__builtin_##name(x)); }                             \
    __forceinline__ int gf_emulator_##name(double x) { return bool(__builtin_##name(x)); }                            \
    namespace std {                                                                                                   \
    template <class T>                                                                                                \
    __forceinline__ constexpr bool gf_emulator_##name(T x) {                                                          \
        if constexpr (std::is_integral_v<T>) return __builtin_##name(double(x));                                      \
        else return __builtin_##name(x);                                                                              \
    }                                                                                                                 \
    }

GF_EMULATOR_1(acos, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(acosh, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(asin, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(asinh, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(atan, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(atanh, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(cbrt, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(ceil, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(cosh, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(erf, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(erfc, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(exp10, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(expm1, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(fabs, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(floor, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(j0, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(j1, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(lgamma, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(log10, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(log1p, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(logb, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(nearbyint, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(rint, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(round, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(sinh, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(tan, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(tgamma, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(trunc, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(y0, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(y1, double, float, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(cos, double, float, GF_EMULATOR_SPECIAL)
GF_EMULATOR_1(exp, double, float, GF_EMULATOR_SPECIAL)
GF_EMULATOR_1(exp2, double, float, GF_EMULATOR_SPECIAL)
GF_EMULATOR_1(log, double, float, GF_EMULATOR_SPECIAL)
GF_EMULATOR_1(log2, double, float, GF_EMULATOR_SPECIAL)
GF_EMULATOR_1(sin, double, float, GF_EMULATOR_SPECIAL)
GF_EMULATOR_1(sqrt, double, float, GF_EMULATOR_SPECIAL)
GF_EMULATOR_1(tanh, double, float, GF_EMULATOR_SPECIAL)
GF_EMULATOR_1(ilogb, int, int, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(lrint, long, long, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(lround, long, long, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(llrint, long long, long long, GF_EMULATOR_PLAIN)
GF_EMULATOR_1(llround, long long, long long, GF_EMULATOR_PLAIN)
GF_EMULATOR_2(atan2)
GF_EMULATOR_2(fdim)
GF_EMULATOR_2(fmod)
GF_EMULATOR_2(hypot)
GF_EMULATOR_2(nextafter)
GF_EMULATOR_2(remainder)
GF_EMULATOR_SCALED(ldexp, int)
GF_EMULATOR_SCALED(scalbn, int)
GF_EMULATOR_SCALED(scalbln, long)
GF_EMULATOR_ASKS(isfinite)
GF_EMULATOR_ASKS(isinf)
GF_EMULATOR_ASKS(isnan)
GF_EMULATOR_ASKS(signbit)

__forceinline__ double gf_emulator_fmin(double x, double y) { return __builtin_fmin(x, y); }
__forceinline__ double gf_emulator_fmax(double x, double y) { return __builtin_fmax(x, y); }
__forceinline__ float gf_emulator_fmin(float x, float y) { return gf_emulator_fminf(x, y); }
__forceinline__ float gf_emulator_fmax(float x, float y) { return gf_emulator_fmaxf(x, y); }
GF_EMULATOR_MIXED(fmin)
GF_EMULATOR_MIXED(fmax)

__forceinline__ double gf_emulator_pow(double x, double y) { return __builtin_pow(x, y); }
__forceinline__ float gf_emulator_powf(float x, float y) {
    gf_emulator::special();
    gf_emulator::special();
    return __builtin_powf(x, y);
}
__forceinline__ float gf_emulator_pow(float x, float y) { return __builtin_powf(x, y); }
GF_EMULATOR_MIXED(pow)
__forceinline__ double gf_emulator_pow(double x, int y) { return __builtin_pow(x, y); }
__forceinline__ float gf_emulator_pow(float x, int y) { return __builtin_powf(x, float(y)); }

__forceinline__ double gf_emulator_copysign(double x, double y) { return __builtin_copysign(x, y); }
__forceinline__ double gf_emulator_copysign(float x, double y) { return __builtin_copysign(double(x), y); }
__forceinline__ double gf_emulator_copysign(double x, float y) { return __builtin_copysign(x, double(y)); }
__forceinline__ float gf_emulator_copysignf(float x, float y) { return __builtin_copysignf(x, y); }
__forceinline__ float gf_emulator_copysign(float x, float y) { return __builtin_copysignf(x, y); }

__forceinline__ double gf_emulator_fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
__forceinline__ float gf_emulator_fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
__forceinline__ float gf_emulator_fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }

__forceinline__ double gf_emulator_frexp(double x, int* exponent) { return __builtin_frexp(x, exponent); }
__forceinline__ float gf_emulator_frexpf(float x, int* exponent) { return __builtin_frexpf(x, exponent); }
__forceinline__ float gf_emulator_frexp(float x, int* exponent) { return __builtin_frexpf(x, exponent); }
__forceinline__ double gf_emulator_modf(double x, double* whole) { return __builtin_modf(x, whole); }
__forceinline__ float gf_emulator_modff(float x, float* whole) { return __builtin_modff(x, whole); }
__forceinline__ float gf_emulator_modf(float x, float* whole) { return __builtin_modff(x, whole); }
__forceinline__ double gf_emulator_remquo(double x, double y, int* part) { return __builtin_remquo(x, y, part); }
__forceinline__ float gf_emulator_remquof(float x, float y, int* part) { return __builtin_remquof(x, y, part); }
__forceinline__ float gf_emulator_remquo(float x, float y, int* part) { return __builtin_remquof(x, y, part); }
__forceinline__ void gf_emulator_sincos(double x, double* sine, double* cosine) { ::sincos(x, sine, cosine); }
__forceinline__ void gf_emulator_sincosf(float x, float* sine, float* cosine) { ::sincosf(x, sine, cosine); }
__forceinline__ void gf_emulator_sincos(float x, float* sine, float* cosine) { ::sincosf(x, sine, cosine); }
__forceinline__ double gf_emulator_jn(int order, double x) { return ::jn(order, x); }
__forceinline__ float gf_emulator_jnf(int order, float x) { return ::jnf(order, x); }
__forceinline__ float gf_emulator_jn(int order, float x) { return ::jnf(order, x); }
__forceinline__ double gf_emulator_yn(int order, double x) { return ::yn(order, x); }
__forceinline__ float gf_emulator_ynf(int order, float x) { return ::ynf(order, x); }
__forceinline__ float gf_emulator_yn(int order, float x) { return ::ynf(order, x); }

__forceinline__ double gf_emulator_nan_of(const char*) { return __builtin_nan(""); }
__forceinline__ float gf_emulator_nanf_of(const char*) { return __builtin_nanf(""); }

__forceinline__ int gf_emulator_abs(int x) { return __builtin_abs(x); }
__forceinline__ long gf_emulator_abs(long x) { return __builtin_labs(x); }
__forceinline__ long long gf_emulator_abs(long long x) { return __builtin_llabs(x); }
__forceinline__ double gf_emulator_abs(double x) { return __builtin_fabs(x); }
__forceinline__ float gf_emulator_abs(float x) { return __builtin_fabsf(x); }
__forceinline__ long gf_emulator_labs(long x) { return __builtin_labs(x); }
__forceinline__ long long gf_emulator_llabs(long long x) { return __builtin_llabs(x); }

namespace std {
using ::gf_emulator_abs, ::gf_emulator_labs, ::gf_emulator_llabs, ::gf_emulator_nan_of, ::gf_emulator_nanf_of;
using ::gf_emulator_copysign, ::gf_emulator_copysignf, ::gf_emulator_fma, ::gf_emulator_fmaf;
using ::gf_emulator_frexp, ::gf_emulator_modf, ::gf_emulator_remquo;
using ::gf_emulator_frexpf, ::gf_emulator_modff, ::gf_emulator_remquof;
template <class T, class U, gf_emulator::Mixed<T, U> = 0>
__forceinline__ double gf_emulator_copysign(T x, U y) {
    return __builtin_copysign(double(x), double(y));
}
template <class T, class U, class V, gf_emulator::Mixed<decltype(T() + U()), V> = 0>
__forceinline__ double gf_emulator_fma(T x, U y, V z) {
    return __builtin_fma(double(x), double(y), double(z));
}
template <class T>
__forceinline__ T gf_emulator_hypot(T x, T y, T z) {
    return ::gf_emulator_hypot(::gf_emulator_hypot(x, y), z);
}
}  // namespace std

#undef GF_EMULATOR_1
#undef GF_EMULATOR_2
#undef GF_EMULATOR_ASKS
#undef GF_EMULATOR_MIXED
#undef GF_EMULATOR_PLAIN
#undef GF_EMULATOR_SCALED
#undef GF_EMULATOR_SPECIAL
