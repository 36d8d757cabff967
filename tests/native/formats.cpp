// Narrow floating-point formats, at every code and at every value where rounding turns over: a monotonic function that
// is right there is right everywhere. Values come from the formats' definitions (IEEE 754; OCP 8-bit Floating Point
// Specification), not from the code under test.
#include <cmath>
#include <limits>
#include <random>

#include "claims.h"
#include "gf_emulator/float8.h"

using namespace gf_emulator;

namespace {

struct Definition {
    int exponent_bits, fraction_bits;
    unsigned largest;  // the code of the largest finite value
    int code_bits() const { return 1 + exponent_bits + fraction_bits; }
    // Of a finite non-negative code.
    double value(unsigned code) const {
        const int bias = (1 << (exponent_bits - 1)) - 1, exponent = int(code >> fraction_bits);
        const double fraction = code & ((1u << fraction_bits) - 1);
        return exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                             : std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
    }
};
constexpr Definition half{5, 10, 0x7bff}, bfloat{8, 7, 0x7f7f}, e4m3{4, 3, 0x7e}, e5m2{5, 2, 0x7b};

constexpr float infinity = std::numeric_limits<float>::infinity();

// Every finite code, of both signs, means what its definition says.
template <class ToFloat>
void means(const Definition& format, ToFloat to_float) {
    const unsigned sign = 1u << (format.code_bits() - 1);
    for (unsigned code = 0; code <= format.largest; code++) {
        SAME(double(to_float(code)), format.value(code));
        SAME(double(to_float(sign | code)), -format.value(code));
        CLAIM(std::signbit(to_float(sign | code)));
    }
}

// Between two neighbours: their middle goes to the even one, whatever is beside it to the nearer one.
template <class FromFloat>
void rounds_to_nearest_even(const Definition& format, FromFloat from_float) {
    const unsigned sign = 1u << (format.code_bits() - 1);
    for (unsigned code = 0; code < format.largest; code++) {
        const float middle = float((format.value(code) + format.value(code + 1)) / 2);
        const unsigned even = code % 2 ? code + 1 : code;
        for (const float side : {1.0f, -1.0f}) {
            const unsigned with = side < 0 ? sign : 0;
            SAME(from_float(side * float(format.value(code))), with | code);
            SAME(from_float(side * middle), with | even);
            SAME(from_float(side * std::nextafter(middle, 0.0f)), with | code);
            SAME(from_float(side * std::nextafter(middle, infinity)), with | (code + 1));
        }
    }
    SAME(from_float(0.0f), 0u);
    SAME(from_float(-0.0f), sign);
}

// From half a step beyond the largest value on.
template <class FromFloat>
void overflows(const Definition& format, unsigned beyond, FromFloat from_float) {
    const double step = format.value(format.largest) - format.value(format.largest - 1);
    const float edge = float(format.value(format.largest) + step / 2);
    SAME(from_float(std::nextafter(edge, 0.0f)), format.largest);
    for (const float value : {edge, std::nextafter(edge, infinity), 2 * edge, infinity})
        SAME(from_float(value), beyond);
}

template <class ToFloat>
void is_nan(ToFloat to_float, unsigned first, unsigned last) {
    for (unsigned code = first; code <= last; code++) CLAIM(std::isnan(to_float(code)));
}

unsigned as_half(float value) { return HalfFormat::from_float(value); }
unsigned as_bfloat(float value) { return BFloat16Format::from_float(value); }
float from_half(unsigned code) { return HalfFormat::to_float(std::uint16_t(code)); }
float from_bfloat(unsigned code) { return BFloat16Format::to_float(std::uint16_t(code)); }

}  // namespace

CASE(half_is_exact_at_every_code) {
    means(half, from_half);
    is_nan(from_half, 0x7c01, 0x7fff);
    SAME(from_half(0x7c00), infinity);
    SAME(from_half(0xfc00), -infinity);
}

CASE(half_rounds_to_nearest_even) {
    rounds_to_nearest_even(half, as_half);
    overflows(half, 0x7c00, as_half);
    SAME(as_half(std::nanf("")), 0x7fffu);
    SAME(as_half(-std::nanf("")), 0x7fffu);
}

CASE(bfloat_is_exact_at_every_code) {
    means(bfloat, from_bfloat);
    is_nan(from_bfloat, 0x7f81, 0x7fff);
    SAME(from_bfloat(0x7f80), infinity);
}

CASE(bfloat_rounds_to_nearest_even) {
    rounds_to_nearest_even(bfloat, as_bfloat);
    SAME(as_bfloat(std::numeric_limits<float>::max()), 0x7f80u);
    SAME(as_bfloat(infinity), 0x7f80u);
    SAME(as_bfloat(std::nanf("")), 0x7fffu);
}

CASE(e4m3_has_no_infinity_and_saturates_only_when_told_to) {
    const auto from = [](unsigned code) { return E4m3Format::to_float(std::uint8_t(code)); };
    means(e4m3, from);
    SAME(from(0x7e), 448.0f);
    is_nan(from, 0x7f, 0x7f);
    for (const bool saturate : {true, false}) {
        const auto to = [=](float value) { return unsigned(E4m3Format::from_float(value, saturate)); };
        rounds_to_nearest_even(e4m3, to);
        SAME(to(std::nanf("")), 0x7fu);
        SAME(to(465.0f), saturate ? 0x7eu : 0x7fu);
        SAME(to(-infinity), saturate ? 0xfeu : 0xffu);
        SAME(to(464.0f), 0x7eu);             // the middle to where 480 would be, which is NaN's code: to the even one
    }
}

CASE(e5m2_has_infinities_and_saturates_only_when_told_to) {
    const auto from = [](unsigned code) { return E5m2Format::to_float(std::uint8_t(code)); };
    means(e5m2, from);
    SAME(from(0x7b), 57344.0f);
    SAME(from(0x7c), infinity);
    SAME(from(0xfc), -infinity);
    is_nan(from, 0x7d, 0x7f);
    for (const bool saturate : {true, false}) {
        const auto to = [=](float value) { return unsigned(E5m2Format::from_float(value, saturate)); };
        rounds_to_nearest_even(e5m2, to);
        overflows(e5m2, saturate ? 0x7b : 0x7c, to);
        SAME(to(std::nanf("")), 0x7fu);
    }
}

CASE(tf32_rounds_to_nearest_and_ties_away_from_zero) {
    std::mt19937 random(1);
    for (int i = 0; i < 400000; i++) {
        std::uint32_t bits = random();
        if (i % 4 == 0) bits = (bits & 0xffffe000u) | 0x1000u;                   // a tie
        const float value = float_from_bits(bits);
        if (!std::isfinite(value)) continue;
        const float below = float_from_bits(bits & 0xffffe000u);
        const float above = float_from_bits((bits & 0xffffe000u) + 0x2000u);
        const double down = std::fabs(double(value) - double(below)), up = std::fabs(double(above) - double(value));
        SAME(float_from_bits(tf32_bits(value)), up <= down ? above : below);
    }
    SAME(float_from_bits(tf32_bits(infinity)), infinity);
    CLAIM(std::isnan(float_from_bits(tf32_bits(std::nanf("")))));
}

CASE(a_sticky_bit_makes_two_roundings_one) {
    for (unsigned code = 1; code < half.largest; code++) {
        const double middle = (half.value(code) + half.value(code + 1)) / 2, little = std::ldexp(middle, -45);
        SAME(as_half(round_to_odd(middle + little)), code + 1);
        SAME(as_half(round_to_odd(middle - little)), code);
        SAME(as_half(round_to_odd(middle)), code % 2 ? code + 1 : code);
    }
    // 1 + 2^-11 is halfway between two halves; what a product adds far below decides.
    const double tie = 1.0 + std::ldexp(1.0, -11), far = std::ldexp(1.0, -70);
    SAME(as_half(round_to_odd(multiply_add_to_odd(far, 1.0, tie))), as_half(1.0f) + 1);
    SAME(as_half(round_to_odd(multiply_add_to_odd(far, -1.0, tie))), as_half(1.0f));
    SAME(multiply_add_to_odd(3.0, 5.0, 7.0), 22.0);
}
