// Emulated form of gf/mma_tf32.cuh.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/qualifiers.h"

namespace gf {

__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                                 unsigned b1) {
    const unsigned b[2] = {b0, b1};
    constexpr gf_emulator::Element tf32 = gf_emulator::Element::tf32;
    gf_emulator_matrix_multiply(d, a, b, d, gf_emulator::TileShape::m16n8k8, tf32, tf32,
                                gf_emulator::Element::float32, gf_emulator::Collective::mma);
}

}  // namespace gf
