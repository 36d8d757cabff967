#pragma once

namespace gf {

// Load 1, 2 or 4 matrices of 8 x 8 16-bit elements from shared memory, the whole warp together. Lane 8 m + r
// gives the 16-byte aligned address of row r of matrix m (lanes beyond 8 count: ignored). Register m of lane
// l gets elements (l / 4, 2 (l % 4)) and (l / 4, 2 (l % 4) + 1) of matrix m, the first in its low half.
// Undefined unless all 32 lanes run it together. PTX ISA, "Warp-level matrix load instruction: ldmatrix".
//! Undefined, too: a lane that has exited, a row that is not 16-byte aligned (the emulator: `misaligned`), and a row
//! outside of this block's shared memory (`device_fault`). Up to sm_75, ignored lanes need a valid address as well.
template <int count>
__device__ __forceinline__ void ldmatrix(unsigned (&registers)[count], const void* row) {
    static_assert(count == 1 || count == 2 || count == 4, "ldmatrix loads 1, 2 or 4 matrices");
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if constexpr (count == 1) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                     : "=r"(registers[0])
                     : "r"(address)
                     : "memory");
    } else if constexpr (count == 2) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(registers[0]), "=r"(registers[1])
                     : "r"(address)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                     : "r"(address)
                     : "memory");
    }
}

// The same with every matrix transposed: register m of lane l gets elements (2 (l % 4), l / 4) and (2 (l % 4)
// + 1, l / 4).
//! Undefined: the same.
template <int count>
__device__ __forceinline__ void ldmatrix_transposed(unsigned (&registers)[count], const void* row) {
    static_assert(count == 1 || count == 2 || count == 4, "ldmatrix loads 1, 2 or 4 matrices");
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if constexpr (count == 1) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                     : "=r"(registers[0])
                     : "r"(address)
                     : "memory");
    } else if constexpr (count == 2) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(registers[0]), "=r"(registers[1])
                     : "r"(address)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                     : "r"(address)
                     : "memory");
    }
}

}  // namespace gf
