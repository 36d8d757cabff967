// threadIdx and its kin.
#pragma once
#include "gf_emulator/abi.h"

#define threadIdx (gf_emulator_thread_index())
#define blockIdx (gf_emulator_block_index())
#define blockDim (::dim3(gf_emulator_block_size()))
#define gridDim (::dim3(gf_emulator_grid_size()))
#define warpSize 32
