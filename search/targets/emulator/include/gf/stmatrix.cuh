// Emulated form of gf/stmatrix.cuh.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/qualifiers.h"

namespace gf {

template <int count>
__device__ __forceinline__ void stmatrix(void* row, const unsigned (&registers)[count]) {
    static_assert(count == 1 || count == 2 || count == 4, "stmatrix stores 1, 2 or 4 matrices");
    gf_emulator_stmatrix(row, registers, count, false);
}

template <int count>
__device__ __forceinline__ void stmatrix_transposed(void* row, const unsigned (&registers)[count]) {
    static_assert(count == 1 || count == 2 || count == 4, "stmatrix stores 1, 2 or 4 matrices");
    gf_emulator_stmatrix(row, registers, count, true);
}

}  // namespace gf
