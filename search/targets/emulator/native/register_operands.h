// Operands of which a register holds `n` neighbours along k: fp8 (n = 4) and tf32 (n = 1). With g = lane / 4
// and t = lane % 4, register r of A holds row g + 8 (r % 2) from k = n (t + 4 (r / 2)) on, register r of B
// column g + 8 (r / 2) from k = n (t + 4 (r % 2)) on. PTX ISA, "Matrix Fragments for mma.m16n8k8" and
// "...mma.m16n8k32"; wmma's m16n16k8 is two of them side by side.
#pragma once
#include <array>
#include <cstring>

#include "gf_emulator/abi.h"
#include "gf_emulator/float8.h"

namespace gf_emulator {

using Registers = std::array<const char*, 32>;  // each lane's

constexpr bool in_whole_registers(Element element) {
    return element == Element::tf32 || element == Element::float8_e4m3 || element == Element::float8_e5m2;
}
constexpr int elements_a_register(Element element) { return element == Element::tf32 ? 1 : 4; }

// Where register `r` of a lane begins.
struct OperandPlace {
    int line;  // row of A, column of B
    int k;
};
constexpr OperandPlace operand_place(TileUse use, Element element, unsigned lane, int r) {
    const int g = int(lane / 4), t = int(lane % 4), n = elements_a_register(element);
    return use == TileUse::matrix_a ? OperandPlace{g + 8 * (r % 2), n * (t + 4 * (r / 2))}
                                    : OperandPlace{g + 8 * (r / 2), n * (t + 4 * (r % 2))};
}

inline void decode_register(std::uint32_t bits, Element element, float* values) {
    if (element == Element::tf32) {
        values[0] = float_from_bits(bits & 0xffffe000u);  // the unit sees no more of it
        return;
    }
    for (int i = 0; i < 4; i++) {
        const auto code = std::uint8_t(bits >> 8 * i);
        values[i] = element == Element::float8_e4m3 ? E4m3Format::to_float(code) : E5m2Format::to_float(code);
    }
}

// A: rows x depth, row after row; B: depth x columns, row after row; `registers_a_lane` of each lane.
inline void gather_registers(const Registers& registers, TileUse use, Element element, int registers_a_lane,
                             int row_length, float* matrix) {
    for (unsigned lane = 0; lane < 32; lane++)
        for (int r = 0; r < registers_a_lane; r++) {
            std::uint32_t bits;
            std::memcpy(&bits, registers[lane] + 4 * r, sizeof bits);
            float values[4];
            decode_register(bits, element, values);
            const OperandPlace place = operand_place(use, element, lane, r);
            for (int i = 0; i < elements_a_register(element); i++) {
                const int k = place.k + i;
                matrix[use == TileUse::matrix_a ? place.line * row_length + k : k * row_length + place.line] =
                    values[i];
            }
        }
}

}  // namespace gf_emulator
