// Arithmetic under a rounding mode, for CUDA's intrinsics that name one. The processor rounds.
#include <cfenv>
#include <cmath>

#include "gf_emulator/abi.h"

using namespace gf_emulator;

namespace {

// For as long as it lives. Values go through `volatile`, so that no compiler computes them under another mode.
class UnderRounding {
public:
    explicit UnderRounding(Rounding mode) : before_(std::fegetround()) {
        std::fesetround(mode == Rounding::to_zero ? FE_TOWARDZERO : mode == Rounding::up ? FE_UPWARD : FE_DOWNWARD);
    }
    UnderRounding(const UnderRounding&) = delete;
    ~UnderRounding() { std::fesetround(before_); }

private:
    int before_;
};

template <class Real>
Real computed(RoundedOperation operation, Rounding mode, Real first, Real second, Real third) {
    volatile Real x = first, y = second, z = third, result;
    const UnderRounding under(mode);
    switch (operation) {
        case RoundedOperation::add: result = x + y; break;
        case RoundedOperation::multiply: result = x * y; break;
        case RoundedOperation::multiply_add: result = std::fma(x, y, z); break;
        case RoundedOperation::divide: result = x / y; break;
        default: result = std::sqrt(x); break;
    }
    return result;
}

template <class To, class From>
To converted(Rounding mode, From value) {
    volatile From x = value;
    volatile To result;
    const UnderRounding under(mode);
    result = static_cast<To>(x);
    return result;
}

}  // namespace

extern "C" {

float gf_emulator_rounded_float(RoundedOperation operation, Rounding mode, float x, float y, float z) {
    return computed(operation, mode, x, y, z);
}
double gf_emulator_rounded_double(RoundedOperation operation, Rounding mode, double x, double y, double z) {
    return computed(operation, mode, x, y, z);
}
float gf_emulator_rounded_to_float(Rounding mode, double x) { return converted<float>(mode, x); }
float gf_emulator_rounded_signed(Rounding mode, long long x) { return converted<float>(mode, x); }
float gf_emulator_rounded_unsigned(Rounding mode, unsigned long long x) { return converted<float>(mode, x); }
double gf_emulator_rounded_signed_double(Rounding mode, long long x) { return converted<double>(mode, x); }
double gf_emulator_rounded_unsigned_double(Rounding mode, unsigned long long x) { return converted<double>(mode, x); }

}  // extern "C"
