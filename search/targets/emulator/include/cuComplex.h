// Stands in for CUDA's cuComplex.h: complex numbers as float2 and double2. Quotients and absolute values are scaled,
// so that they overflow only where their results do.
#pragma once
#include "cuda_runtime.h"

using cuFloatComplex = float2;
using cuDoubleComplex = double2;
using cuComplex = cuFloatComplex;

// Complex: its type    Real: the type of its parts    f: the letter that ends the functions of floats
#define GF_EMULATOR_COMPLEX(Complex, Real, f)                                                              \
    inline Real cuCreal##f(Complex a) { return a.x; }                                                      \
    inline Real cuCimag##f(Complex a) { return a.y; }                                                      \
    inline Complex make_##Complex(Real real, Real imaginary) {                                             \
        Complex a;                                                                                         \
        a.x = real;                                                                                        \
        a.y = imaginary;                                                                                   \
        return a;                                                                                          \
    }                                                                                                      \
    inline Complex cuConj##f(Complex a) { return make_##Complex(a.x, -a.y); }                              \
    inline Complex cuCadd##f(Complex a, Complex b) { return make_##Complex(a.x + b.x, a.y + b.y); }        \
    inline Complex cuCsub##f(Complex a, Complex b) { return make_##Complex(a.x - b.x, a.y - b.y); }        \
    inline Complex cuCmul##f(Complex a, Complex b) {                                                       \
        return make_##Complex(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);                               \
    }                                                                                                      \
    inline Complex cuCdiv##f(Complex a, Complex b) {                                                       \
        const Real scale = Real(1) / (fabs##f(b.x) + fabs##f(b.y));                                        \
        const Complex c = make_##Complex(a.x * scale, a.y * scale), d = make_##Complex(b.x * scale, b.y * scale); \
        const Real inverse = Real(1) / (d.x * d.x + d.y * d.y);                                            \
        return make_##Complex((c.x * d.x + c.y * d.y) * inverse, (c.y * d.x - c.x * d.y) * inverse);       \
    }                                                                                                      \
    inline Real cuCabs##f(Complex a) { return hypot##f(a.x, a.y); }

GF_EMULATOR_COMPLEX(cuFloatComplex, float, f)
GF_EMULATOR_COMPLEX(cuDoubleComplex, double, )
#undef GF_EMULATOR_COMPLEX

inline cuComplex make_cuComplex(float real, float imaginary) { return make_cuFloatComplex(real, imaginary); }
inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex a) { return make_cuDoubleComplex(a.x, a.y); }
inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex a) {
    return make_cuFloatComplex(float(a.x), float(a.y));
}
inline cuComplex cuCfmaf(cuComplex a, cuComplex b, cuComplex c) { return cuCaddf(cuCmulf(a, b), c); }
inline cuDoubleComplex cuCfma(cuDoubleComplex a, cuDoubleComplex b, cuDoubleComplex c) {
    return cuCadd(cuCmul(a, b), c);
}
