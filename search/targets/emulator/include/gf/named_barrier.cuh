// Emulated form of gf/named_barrier.cuh.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/qualifiers.h"

namespace gf {

__device__ __forceinline__ void named_barrier_sync(int id, int thread_count) {
    gf_emulator_named_barrier(unsigned(id), unsigned(thread_count), true);
}

__device__ __forceinline__ void named_barrier_arrive(int id, int thread_count) {
    gf_emulator_named_barrier(unsigned(id), unsigned(thread_count), false);
}

}  // namespace gf
