// Which element of a tile each lane holds. Every layout is a list of 8 x 8 tiles, one pair of elements a lane
// and tile: with g = lane / 4 and t = lane % 4, a pair lies at (g, 2t), (g, 2t + 1), or transposed. m16n8k16:
// PTX ISA, "Matrix Fragments for mma.m16n8k16". The wmma layouts are not documented; these are what an H200
// (sm_90) showed for every shape, operand, type and memory order, and m16n16k16 agrees with published sm_80
// tables.
#pragma once
#include "gf_emulator/abi.h"

namespace gf_emulator {

struct FragmentLayout {
    struct Offset {
        int row, column;
    };
    int rows, columns;
    bool pairs_along_columns;  // the second element of a pair is in the next column; else in the next row
    int tiles;
    Offset tile[8];
};

inline const FragmentLayout& layout_of(TileShape shape, TileUse use) {
    static constexpr FragmentLayout layouts[7][3] = {
        {
            // m16n16k16
            {16, 16, true, 4, {{0, 0}, {8, 0}, {0, 8}, {8, 8}}},
            {16, 16, false, 4, {{0, 0}, {8, 0}, {0, 8}, {8, 8}}},
            {16, 16, true, 4, {{0, 0}, {8, 0}, {0, 8}, {8, 8}}},
        },
        {
            // m32n8k16
            {32, 16, true, 8, {{0, 0}, {8, 0}, {0, 8}, {8, 8}, {16, 0}, {24, 0}, {16, 8}, {24, 8}}},
            {16, 8, false, 2, {{0, 0}, {8, 0}}},
            {32, 8, true, 4, {{0, 0}, {8, 0}, {16, 0}, {24, 0}}},
        },
        {
            // m8n32k16: computed as the transposed product
            {8, 16, true, 2, {{0, 0}, {0, 8}}},
            {16, 32, false, 8, {{0, 0}, {0, 8}, {8, 0}, {8, 8}, {0, 16}, {0, 24}, {8, 16}, {8, 24}}},
            {8, 32, false, 4, {{0, 0}, {0, 8}, {0, 16}, {0, 24}}},
        },
        {
            // m16n8k16
            {16, 16, true, 4, {{0, 0}, {8, 0}, {0, 8}, {8, 8}}},
            {16, 8, false, 2, {{0, 0}, {8, 0}}},
            {16, 8, true, 2, {{0, 0}, {8, 0}}},
        },
        // Operands of these are in register_operands.h; only their sizes stand here.
        {
            // m16n16k8
            {16, 8, true, 0, {}},
            {8, 16, true, 0, {}},
            {16, 16, true, 4, {{0, 0}, {8, 0}, {0, 8}, {8, 8}}},
        },
        {
            // m16n8k8
            {16, 8, true, 0, {}},
            {8, 8, true, 0, {}},
            {16, 8, true, 2, {{0, 0}, {8, 0}}},
        },
        {
            // m16n8k32
            {16, 32, true, 0, {}},
            {32, 8, true, 0, {}},
            {16, 8, true, 2, {{0, 0}, {8, 0}}},
        },
    };
    return layouts[int(shape)][int(use)];
}

}  // namespace gf_emulator
