// The C library's mathematics that writes through a pointer, as a checked kernel calls it: the linker sends those calls
// here (WRAPPED_CALLS in flags.py).
#include <cmath>

#include "worker.h"

using namespace gf_emulator;

namespace {

void writes(void* address, std::size_t bytes, const void* site) {
    if (Checker* checker = Checker::active()) checker->access_range(address, bytes, Action::write, site);
}

}  // namespace

#define SITE __builtin_return_address(0)

#pragma GCC visibility push(default)
extern "C" {

double __wrap_frexp(double x, int* exponent) {
    writes(exponent, sizeof *exponent, SITE);
    return std::frexp(x, exponent);
}
float __wrap_frexpf(float x, int* exponent) {
    writes(exponent, sizeof *exponent, SITE);
    return std::frexp(x, exponent);
}
double __wrap_modf(double x, double* whole) {
    writes(whole, sizeof *whole, SITE);
    return std::modf(x, whole);
}
float __wrap_modff(float x, float* whole) {
    writes(whole, sizeof *whole, SITE);
    return std::modf(x, whole);
}
double __wrap_remquo(double x, double y, int* quotient) {
    writes(quotient, sizeof *quotient, SITE);
    return std::remquo(x, y, quotient);
}
float __wrap_remquof(float x, float y, int* quotient) {
    writes(quotient, sizeof *quotient, SITE);
    return std::remquo(x, y, quotient);
}
void __wrap_sincos(double x, double* sine, double* cosine) {
    writes(sine, sizeof *sine, SITE);
    writes(cosine, sizeof *cosine, SITE);
    *sine = std::sin(x);
    *cosine = std::cos(x);
}
void __wrap_sincosf(float x, float* sine, float* cosine) {
    writes(sine, sizeof *sine, SITE);
    writes(cosine, sizeof *cosine, SITE);
    *sine = std::sin(x);
    *cosine = std::cos(x);
}

}  // extern "C"
#pragma GCC visibility pop
