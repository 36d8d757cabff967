// Emulated form of gf/mma.cuh.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "gf_emulator/abi.h"

namespace gf {

template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1) {
    static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>,
                  "mma_m16n8k16 takes half or bfloat16");
    const unsigned b[2] = {b0, b1};
    constexpr gf_emulator::Element input =
        std::is_same_v<T, __half> ? gf_emulator::Element::float16 : gf_emulator::Element::bfloat16;
    gf_emulator_matrix_multiply(d, a, b, d, gf_emulator::TileShape::m16n8k16, input, input,
                                gf_emulator::Element::float32, gf_emulator::Collective::mma);
}

}  // namespace gf
