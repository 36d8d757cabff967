// Exact conversions of fp8 and tf32 by bit pattern, shared by device code and the runtime's tensor cores (OCP
// 8-bit Floating Point Specification, OFP8; PTX ISA, "Alternate Floating-Point Data Formats").
#pragma once
#include "gf_emulator/float_formats.h"

namespace gf_emulator {

// `largest`: the code of the largest finite value; `beyond`: what an overflow gives that does not saturate.
template <int exponent_bits, int fraction_bits, std::uint8_t largest_code, std::uint8_t beyond_code>
struct Float8Format {
    static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
    static constexpr std::uint8_t largest = largest_code, beyond = beyond_code, nan = 0x7f;

    static std::uint8_t from_float(float value, bool saturate) {
        const std::uint32_t bits = float_bits(value), magnitude = bits & 0x7fffffffu;
        if (magnitude > 0x7f800000u) return nan;
        constexpr int dropped = 23 - fraction_bits;
        constexpr std::uint32_t smallest_normal = std::uint32_t(128 - bias) << 23;
        std::uint32_t code;
        if (magnitude < smallest_normal)
            code = std::uint32_t(
                __builtin_rintf(float_from_bits(magnitude) * float(1 << (bias - 1 + fraction_bits))));
        else
            code = ((magnitude + (1u << (dropped - 1)) - 1 + (magnitude >> dropped & 1u)) >> dropped) -
                   (std::uint32_t(127 - bias) << fraction_bits);
        if (code > largest) code = saturate ? largest : beyond;
        return std::uint8_t((bits >> 24 & 0x80u) | code);
    }
    static float to_float(std::uint8_t code) {
        const std::uint32_t sign = std::uint32_t(code & 0x80u) << 24, magnitude = code & 0x7fu;
        if (magnitude > beyond || (magnitude == beyond && beyond == nan)) return float_from_bits(0x7fffffffu);
        if (magnitude > largest) return float_from_bits(sign | 0x7f800000u);
        const float scaled = float_from_bits(magnitude << (23 - fraction_bits));
        return float_from_bits(sign | float_bits(scaled * float_from_bits((254u - unsigned(bias)) << 23)));
    }
};
using E4m3Format = Float8Format<4, 3, 0x7e, 0x7f>;
using E5m2Format = Float8Format<5, 2, 0x7b, 0x7c>;

// PTX ISA, "cvt.rna.tf32.f32": to nearest, ties away from zero. A NaN keeps its leading bits (seen on an H200).
inline std::uint32_t tf32_bits(float value) {
    return (float_bits(value) + (value == value ? 0x1000u : 0u)) & 0xffffe000u;
}

// PTX ISA, "cvt.rn.tf32.f32": to nearest, ties to even.
inline std::uint32_t tf32_bits_to_even(float value) {
    const std::uint32_t bits = float_bits(value);
    return (bits + (value == value ? 0xfffu + (bits >> 13 & 1u) : 0u)) & 0xffffe000u;
}

}  // namespace gf_emulator
