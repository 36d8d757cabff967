#pragma once

namespace gf {

// Store 1, 2 or 4 matrices of 8 x 8 16-bit elements to shared memory, the whole warp together: ldmatrix the
// other way round. Lane 8 m + r gives the 16-byte aligned address of row r of matrix m (lanes beyond 8 count:
// ignored). Register m of lane l holds elements (l / 4, 2 (l % 4)) and (l / 4, 2 (l % 4) + 1) of matrix m,
// the first in its low half. Undefined unless all 32 lanes run it together, and where rows overlap. Needs
// sm_90. PTX ISA, "Warp-level matrix store instruction: stmatrix".
//! Undefined, too: a lane that has exited, a row that is not 16-byte aligned (the emulator: `misaligned`), and a row
//! outside of this block's shared memory (`device_fault`).
template <int count>
__device__ __forceinline__ void stmatrix(void* row, const unsigned (&registers)[count]) {
    static_assert(count == 1 || count == 2 || count == 4, "stmatrix stores 1, 2 or 4 matrices");
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if constexpr (count == 1) {
        asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(address), "r"(registers[0])
                     : "memory");
    } else if constexpr (count == 2) {
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address),
                     "r"(registers[0]), "r"(registers[1])
                     : "memory");
    } else {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                     "r"(registers[0]), "r"(registers[1]), "r"(registers[2]), "r"(registers[3])
                     : "memory");
    }
}

// The same with every matrix transposed: register m of lane l holds elements (2 (l % 4), l / 4) and (2 (l %
// 4)
// + 1, l / 4).
//! Undefined: the same.
template <int count>
__device__ __forceinline__ void stmatrix_transposed(void* row, const unsigned (&registers)[count]) {
    static_assert(count == 1 || count == 2 || count == 4, "stmatrix stores 1, 2 or 4 matrices");
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if constexpr (count == 1) {
        asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(address),
                     "r"(registers[0])
                     : "memory");
    } else if constexpr (count == 2) {
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address),
                     "r"(registers[0]), "r"(registers[1])
                     : "memory");
    } else {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                     "r"(registers[0]), "r"(registers[1]), "r"(registers[2]), "r"(registers[3])
                     : "memory");
    }
}

}  // namespace gf
