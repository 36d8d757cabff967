// Emulated form of gf/dependent_launch.cuh: launches run one after the other, each to its end, so there is nothing to
// wait for. What a launch reads of its predecessor before the wait is hence not seen to be early.
#pragma once
#include "gf_emulator/qualifiers.h"

namespace gf {

__device__ __forceinline__ void dependent_launch_wait() {}
__device__ __forceinline__ void dependent_launch_allow() {}

}  // namespace gf
