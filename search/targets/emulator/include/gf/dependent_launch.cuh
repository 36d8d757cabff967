// Emulated form of gf/dependent_launch.cuh: launches run one after the other, each to its end, so there is nothing to
// wait for. Checked runs see what comes before the wait.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/qualifiers.h"

namespace gf {

__device__ __forceinline__ void dependent_launch_wait() { gf_emulator_dependent_launch_wait(); }
__device__ __forceinline__ void dependent_launch_allow() { gf_emulator_dependent_launch_allow(); }

}  // namespace gf
