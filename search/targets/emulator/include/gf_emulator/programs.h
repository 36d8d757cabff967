// What nvcc declares beyond NVRTC, in programs that `greenfast check` reads: C++'s mathematics for integers, and the calls
// for a dependent launch. No text for NVRTC has this header: it takes the place of <cmath>, which NVRTC does not find.
#pragma once
#include "gf_emulator/prelude.h"

__forceinline__ void cudaGridDependencySynchronize() { gf_emulator_dependent_launch_wait(); }
__forceinline__ void cudaTriggerProgrammaticLaunchCompletion() { gf_emulator_dependent_launch_allow(); }

using std::fpclassify, std::isnormal, std::isunordered;
using std::isgreater, std::isgreaterequal, std::isless, std::islessequal, std::islessgreater;
using std::acos;
using std::acosh;
using std::asin;
using std::asinh;
using std::atan;
using std::atan2;
using std::atanh;
using std::cbrt;
using std::ceil;
using std::copysign;
using std::cos;
using std::cosh;
using std::erf;
using std::erfc;
using std::exp;
using std::exp10;
using std::exp2;
using std::expm1;
using std::fabs;
using std::fdim;
using std::floor;
using std::fma;
using std::fmax;
using std::fmin;
using std::fmod;
using std::hypot;
using std::ilogb;
using std::isfinite;
using std::isinf;
using std::isnan;
using std::j0;
using std::j1;
using std::ldexp;
using std::lgamma;
using std::llrint;
using std::llround;
using std::log;
using std::log10;
using std::log1p;
using std::log2;
using std::logb;
using std::lrint;
using std::lround;
using std::nearbyint;
using std::nextafter;
using std::pow;
using std::remainder;
using std::rint;
using std::round;
using std::scalbln;
using std::scalbn;
using std::signbit;
using std::sin;
using std::sinh;
using std::sqrt;
using std::tan;
using std::tanh;
using std::tgamma;
using std::trunc;
using std::y0;
using std::y1;
