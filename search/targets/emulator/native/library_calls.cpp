// The C library's functions that read or write through pointers, as a checked kernel calls them: the linker sends
// those calls here (WRAPPED_CALLS in flags.py).
#include <cmath>
#include <cstring>

#include "worker.h"

using namespace gf_emulator;

namespace {

void reads(const void* address, std::size_t bytes, const void* site) {
    if (Checker* checker = Checker::active()) checker->access_range(address, bytes, Action::read, site);
}
void writes(void* address, std::size_t bytes, const void* site) {
    if (Checker* checker = Checker::active()) checker->access_range(address, bytes, Action::write, site);
}

}  // namespace

#define SITE __builtin_return_address(0)

#pragma GCC visibility push(default)
extern "C" {

void* __wrap_memcpy(void* destination, const void* source, std::size_t bytes) {
    reads(source, bytes, SITE);
    writes(destination, bytes, SITE);
    return std::memcpy(destination, source, bytes);
}
void* __wrap_memmove(void* destination, const void* source, std::size_t bytes) {
    reads(source, bytes, SITE);
    writes(destination, bytes, SITE);
    return std::memmove(destination, source, bytes);
}
void* __wrap_memset(void* destination, int value, std::size_t bytes) {
    writes(destination, bytes, SITE);
    return std::memset(destination, value, bytes);
}
int __wrap_memcmp(const void* left, const void* right, std::size_t bytes) {
    reads(left, bytes, SITE);
    reads(right, bytes, SITE);
    return std::memcmp(left, right, bytes);
}

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
