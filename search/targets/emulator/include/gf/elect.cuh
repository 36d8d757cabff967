// Emulated form of gf/elect.cuh: the schedule tells which lane it is, the same in all warps.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/qualifiers.h"

namespace gf {

__device__ __forceinline__ bool elect_thread() { return gf_emulator_elect(); }

}  // namespace gf
