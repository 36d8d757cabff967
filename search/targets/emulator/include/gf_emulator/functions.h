// CUDA's mathematics that C does not have (CUDA Math API, "Single Precision Mathematical Functions" and "Double
// Precision Mathematical Functions"). Computed in double; newer C libraries declare some of these names, so they are
// macros.
#pragma once
#include "gf_emulator/mathematics.h"
#include "gf_emulator/qualifiers.h"

namespace gf_emulator {

constexpr double pi = 3.14159265358979323846, inverse_root_pi = 0.56418958354775628695;

inline double sine_of_pi(double x) {
    const double rest = x - 2.0 * __builtin_rint(0.5 * x), size = __builtin_fabs(rest);  // exact
    const double value = size > 0.5 ? 1.0 - size : size;
    return __builtin_copysign(value > 0.25 ? ::cos(pi * (0.5 - value)) : ::sin(pi * value), rest == 0.0 ? x : rest);
}
inline double cosine_of_pi(double x) {
    const double size = __builtin_fabs(x - 2.0 * __builtin_rint(0.5 * x));
    if (size == 0.5) return 0.0;
    const double value = size > 0.5 ? 1.0 - size : size;
    const double cosine = value > 0.25 ? ::sin(pi * (0.5 - value)) : ::cos(pi * value);
    return size > 0.5 ? -cosine : cosine;
}

// Halley's iteration on erfc, from its asymptotic form or from a straight line.
inline double inverse_erfc(double x) {
    if (!(x >= 0.0 && x <= 2.0)) return __builtin_nan("");
    if (x == 0.0) return __builtin_inf();
    if (x == 2.0) return -__builtin_inf();
    const double small = x > 1.0 ? 2.0 - x : x;
    double y = 1.0 - small;
    if (small < 0.5) {
        const double t = ::sqrt(-2.0 * ::log(0.5 * small));
        y = 0.70710678118654752 * (t - (2.30753 + t * 0.27061) / (1.0 + t * (0.99229 + t * 0.04481)));
    }
    for (int i = 0; i < 4; i++) {
        const double error = ::erfc(y) - small, slope = 2.0 * inverse_root_pi * ::exp(-y * y);
        y += error / (slope - y * error);
    }
    return x > 1.0 ? -y : y;
}
inline double inverse_erf(double x) {
    if (__builtin_fabs(x) > 0.5) return x > 0.0 ? inverse_erfc(1.0 - x) : -inverse_erfc(1.0 + x);
    double y = x / (2.0 * inverse_root_pi);
    for (int i = 0; i < 5; i++) {
        const double error = ::erf(y) - x, slope = 2.0 * inverse_root_pi * ::exp(-y * y);
        y -= error / (slope + y * error);
    }
    return y == 0.0 ? x : y;
}
inline double scaled_erfc(double x) {
    if (x < 20.0) return ::exp(x * x) * ::erfc(x);
    const double t = 1.0 / (x * x);
    return inverse_root_pi / x * (1.0 - 0.5 * t * (1.0 - 1.5 * t * (1.0 - 2.5 * t * (1.0 - 3.5 * t))));
}

// Modified Bessel functions of the first kind by their series, order 0 or 1.
inline double bessel_i(double x, int order) {
    const double square = 0.25 * x * x;
    double term = order ? 0.5 * x : 1.0, sum = term;
    for (int k = 1; k < 1000 && term != 0.0 && __builtin_fabs(term) > 1e-17 * __builtin_fabs(sum); k++)
        sum += term *= square / (double(k) * (k + order));
    return sum;
}

template <class Real>
inline double length_of(int dimensions, const Real* values) {
    double sum = 0.0;
    for (int i = 0; i < dimensions; i++) sum = ::hypot(sum, double(values[i]));
    return sum;
}

}  // namespace gf_emulator

// `f` is appended for the float form; the double's name also takes floats, as in CUDA's headers.
#define GF_EMULATOR_FUNCTION(name, value)                                        \
    __forceinline__ double gf_emulator_##name(double x) { return value; }        \
    __forceinline__ float gf_emulator_##name(float x_) {                         \
        const double x = x_;                                                     \
        return float(value);                                                     \
    }                                                                            \
    __forceinline__ float gf_emulator_##name##f(float x) { return gf_emulator_##name(x); }
#define GF_EMULATOR_FUNCTION2(name, value)                                                   \
    __forceinline__ double gf_emulator_##name(double x, double y) { return value; }          \
    __forceinline__ float gf_emulator_##name##f(float x_, float y_) {                        \
        const double x = x_, y = y_;                                                         \
        return float(value);                                                                 \
    }
GF_EMULATOR_FUNCTION(sinpi, gf_emulator::sine_of_pi(x))
GF_EMULATOR_FUNCTION(cospi, gf_emulator::cosine_of_pi(x))
GF_EMULATOR_FUNCTION(rcbrt, 1.0 / ::cbrt(x))
GF_EMULATOR_FUNCTION(erfinv, gf_emulator::inverse_erf(x))
GF_EMULATOR_FUNCTION(erfcinv, gf_emulator::inverse_erfc(x))
GF_EMULATOR_FUNCTION(erfcx, gf_emulator::scaled_erfc(x))
GF_EMULATOR_FUNCTION(normcdfinv, -1.41421356237309504880 * gf_emulator::inverse_erfc(2.0 * x))
GF_EMULATOR_FUNCTION(cyl_bessel_i0, gf_emulator::bessel_i(x, 0))
GF_EMULATOR_FUNCTION(cyl_bessel_i1, gf_emulator::bessel_i(x, 1))
GF_EMULATOR_FUNCTION2(rhypot, 1.0 / ::hypot(x, y))
#undef GF_EMULATOR_FUNCTION
#undef GF_EMULATOR_FUNCTION2
#define sinpi gf_emulator_sinpi
#define sinpif gf_emulator_sinpif
#define cospi gf_emulator_cospi
#define cospif gf_emulator_cospif
#define rcbrt gf_emulator_rcbrt
#define rcbrtf gf_emulator_rcbrtf
#define erfinv gf_emulator_erfinv
#define erfinvf gf_emulator_erfinvf
#define erfcinv gf_emulator_erfcinv
#define erfcinvf gf_emulator_erfcinvf
#define erfcx gf_emulator_erfcx
#define erfcxf gf_emulator_erfcxf
#define normcdfinv gf_emulator_normcdfinv
#define normcdfinvf gf_emulator_normcdfinvf
#define cyl_bessel_i0 gf_emulator_cyl_bessel_i0
#define cyl_bessel_i0f gf_emulator_cyl_bessel_i0f
#define cyl_bessel_i1 gf_emulator_cyl_bessel_i1
#define cyl_bessel_i1f gf_emulator_cyl_bessel_i1f
#define rhypot gf_emulator_rhypot
#define rhypotf gf_emulator_rhypotf

__forceinline__ void sincospi(double x, double* sine, double* cosine) {
    *sine = gf_emulator::sine_of_pi(x);
    *cosine = gf_emulator::cosine_of_pi(x);
}
__forceinline__ void sincospif(float x, float* sine, float* cosine) {
    *sine = float(gf_emulator::sine_of_pi(x));
    *cosine = float(gf_emulator::cosine_of_pi(x));
}
__forceinline__ void sincospi(float x, float* sine, float* cosine) { sincospif(x, sine, cosine); }
__forceinline__ void __sincosf(float x, float* sine, float* cosine) {
    *sine = gf_emulator::fast_sin(x);
    *cosine = gf_emulator::fast_cos(x);
}

__forceinline__ double normcdf(double x) { return 0.5 * ::erfc(x * -0.70710678118654752440); }
__forceinline__ float normcdf(float x) { return normcdff(x); }
__forceinline__ float rsqrt(float x) { return rsqrtf(x); }
__forceinline__ double fdivide(double x, double y) { return x / y; }
__forceinline__ unsigned umin(unsigned x, unsigned y) { return x < y ? x : y; }
__forceinline__ unsigned umax(unsigned x, unsigned y) { return x < y ? y : x; }
__forceinline__ long long llmin(long long x, long long y) { return x < y ? x : y; }
__forceinline__ long long llmax(long long x, long long y) { return x < y ? y : x; }
__forceinline__ unsigned long long ullmin(unsigned long long x, unsigned long long y) { return x < y ? x : y; }
__forceinline__ unsigned long long ullmax(unsigned long long x, unsigned long long y) { return x < y ? y : x; }

__forceinline__ double norm(int dimensions, const double* values) {
    return gf_emulator::length_of(dimensions, values);
}
__forceinline__ float normf(int dimensions, const float* values) {
    return float(gf_emulator::length_of(dimensions, values));
}
__forceinline__ double rnorm(int dimensions, const double* values) { return 1.0 / norm(dimensions, values); }
__forceinline__ float rnormf(int dimensions, const float* values) {
    return float(1.0 / gf_emulator::length_of(dimensions, values));
}
__forceinline__ double norm3d(double x, double y, double z) { return ::hypot(::hypot(x, y), z); }
__forceinline__ double norm4d(double x, double y, double z, double w) { return ::hypot(norm3d(x, y, z), w); }
__forceinline__ double rnorm3d(double x, double y, double z) { return 1.0 / norm3d(x, y, z); }
__forceinline__ double rnorm4d(double x, double y, double z, double w) { return 1.0 / norm4d(x, y, z, w); }
__forceinline__ float norm3df(float x, float y, float z) { return float(norm3d(x, y, z)); }
__forceinline__ float norm4df(float x, float y, float z, float w) { return float(norm4d(x, y, z, w)); }
__forceinline__ float rnorm3df(float x, float y, float z) { return float(rnorm3d(x, y, z)); }
__forceinline__ float rnorm4df(float x, float y, float z, float w) { return float(rnorm4d(x, y, z, w)); }
