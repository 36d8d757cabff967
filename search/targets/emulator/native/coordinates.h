// threadIdx and its kin, which kernels read as constants (include/gf_emulator/coordinates.h): those of the fiber that
// runs on this OS thread.
#pragma once
#include "gf_emulator/vector_types.h"

namespace gf_emulator {

#define GF_EMULATOR_COORDINATE(type, name, symbol) \
    extern __thread type name __asm__(#symbol) __attribute__((tls_model("initial-exec"), visibility("default")))

GF_EMULATOR_COORDINATE(uint3, running_thread_index, gf_emulator_thread_index);
GF_EMULATOR_COORDINATE(uint3, running_block_index, gf_emulator_block_index);
GF_EMULATOR_COORDINATE(uint3, running_block_size, gf_emulator_block_size);
GF_EMULATOR_COORDINATE(uint3, running_grid_size, gf_emulator_grid_size);
GF_EMULATOR_COORDINATE(int, warp_size, gf_emulator_warp_size);

#undef GF_EMULATOR_COORDINATE

// Whether the bytes belong to one of them.
bool is_coordinate(const void* address, unsigned bytes);

}  // namespace gf_emulator
