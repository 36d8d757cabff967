// threadIdx and its kin: constant objects, as on a GPU. The runtime gives them the running fiber's values.
#pragma once
#include "gf_emulator/vector_types.h"

#define GF_EMULATOR_COORDINATE(type, name, symbol) \
    extern __thread const type name __asm__(#symbol) __attribute__((tls_model("initial-exec"), visibility("default")))

GF_EMULATOR_COORDINATE(uint3, threadIdx, gf_emulator_thread_index);
GF_EMULATOR_COORDINATE(uint3, blockIdx, gf_emulator_block_index);
GF_EMULATOR_COORDINATE(dim3, blockDim, gf_emulator_block_size);
GF_EMULATOR_COORDINATE(dim3, gridDim, gf_emulator_grid_size);
GF_EMULATOR_COORDINATE(int, warpSize, gf_emulator_warp_size);

#undef GF_EMULATOR_COORDINATE
