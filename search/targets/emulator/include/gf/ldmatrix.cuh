// Emulated form of gf/ldmatrix.cuh.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/qualifiers.h"

namespace gf {

template <int count>
__device__ __forceinline__ void ldmatrix(unsigned (&registers)[count], const void* row) {
    static_assert(count == 1 || count == 2 || count == 4, "ldmatrix loads 1, 2 or 4 matrices");
    gf_emulator_ldmatrix(registers, row, count, false);
}

template <int count>
__device__ __forceinline__ void ldmatrix_transposed(unsigned (&registers)[count], const void* row) {
    static_assert(count == 1 || count == 2 || count == 4, "ldmatrix loads 1, 2 or 4 matrices");
    gf_emulator_ldmatrix(registers, row, count, true);
}

}  // namespace gf
