// Emulated form of gf/async_copy.cuh: bytes land at the wait and not before.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/qualifiers.h"

namespace gf {

template <int bytes>
__device__ __forceinline__ void async_copy(void* shared_destination, const void* global_source,
                                           int valid_bytes = bytes) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async moves 4, 8 or 16 bytes");
    gf_emulator_async_copy(shared_destination, global_source, bytes, valid_bytes);
}

template <int bytes>
__device__ __forceinline__ void async_copy(void* shared_destination, const void* global_source, bool valid) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async moves 4, 8 or 16 bytes");
    gf_emulator_async_copy(shared_destination, global_source, bytes, valid ? bytes : 0);
}

__device__ __forceinline__ void async_copy_commit() { gf_emulator_async_copy_commit(); }

template <int groups_left_in_flight>
__device__ __forceinline__ void async_copy_wait() {
    gf_emulator_async_copy_wait(groups_left_in_flight);
}

}  // namespace gf
