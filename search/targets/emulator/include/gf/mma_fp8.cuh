// Emulated form of gf/mma_fp8.cuh.
#pragma once
#include <cuda_fp8.h>
#include "gf_emulator/abi.h"

namespace gf {

template <class TA, class TB = TA>
__device__ __forceinline__ void mma_m16n8k32(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1) {
    const unsigned b[2] = {b0, b1};
    gf_emulator_matrix_multiply(d, a, b, d, gf_emulator::TileShape::m16n8k32,
                                gf_emulator::float8_element<TA>(), gf_emulator::float8_element<TB>(),
                                gf_emulator::Element::float32, gf_emulator::Collective::mma);
}

}  // namespace gf
