// Emulated form of gf/cache_hint.cuh: there is no cache to tell.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/qualifiers.h"

namespace gf {

template <int fetched_bytes>
__device__ __forceinline__ void async_copy_fetching(void* shared_destination, const void* global_source,
                                                    int valid_bytes) {
    static_assert(fetched_bytes == 64 || fetched_bytes == 128 || fetched_bytes == 256, "L2 fetches 64, 128 or 256 bytes");
    gf_emulator_async_copy(shared_destination, global_source, 16, valid_bytes);
}

__device__ __forceinline__ void async_copy_keeping(void* shared_destination, const void* global_source,
                                                   int valid_bytes) {
    gf_emulator_async_copy(shared_destination, global_source, 16, valid_bytes);
}

__device__ __forceinline__ unsigned load_once(const unsigned* source) { return __ldg(source); }

}  // namespace gf
