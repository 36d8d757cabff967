// Emulated form of gf/register_budget.cuh: a count of the block's registers.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/qualifiers.h"

namespace gf {

template <int registers>
__device__ __forceinline__ void register_grow() {
    static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256, "24 to 256, in steps of 8");
    gf_emulator_set_registers(registers, true);
}
template <int registers>
__device__ __forceinline__ void register_shrink() {
    static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256, "24 to 256, in steps of 8");
    gf_emulator_set_registers(registers, false);
}

}  // namespace gf
