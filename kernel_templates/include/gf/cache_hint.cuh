#pragma once

namespace gf {

// Copies and loads that tell the caches what to expect. Results are those of the plain forms: a hint may be ignored.

// async_copy<16> (gf/async_copy.cuh), after which L2 holds the whole aligned `fetched_bytes` (64, 128 or 256) around
// the source. Needs sm_80. PTX ISA, "cp.async", .level::prefetch_size.
//! Undefined: what is undefined of async_copy<16>.
template <int fetched_bytes>
__device__ __forceinline__ void async_copy_fetching(void* shared_destination, const void* global_source,
                                                    int valid_bytes) {
    static_assert(fetched_bytes == 64 || fetched_bytes == 128 || fetched_bytes == 256, "L2 fetches 64, 128 or 256 bytes");
    const unsigned destination = static_cast<unsigned>(__cvta_generic_to_shared(shared_destination));
    if constexpr (fetched_bytes == 64)
        asm volatile("cp.async.cg.shared.global.L2::64B [%0], [%1], 16, %2;" ::"r"(destination), "l"(global_source),
                     "r"(valid_bytes)
                     : "memory");
    else if constexpr (fetched_bytes == 128)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(destination), "l"(global_source),
                     "r"(valid_bytes)
                     : "memory");
    else
        asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(destination), "l"(global_source),
                     "r"(valid_bytes)
                     : "memory");
}

// async_copy<16> of what is read again, by other blocks: the last lines that L2 shall give up. Needs sm_80. PTX ISA,
// "createpolicy", "cp.async", .level::cache_hint.
//! Undefined: what is undefined of async_copy<16>.
__device__ __forceinline__ void async_copy_keeping(void* shared_destination, const void* global_source,
                                                   int valid_bytes) {
    const unsigned destination = static_cast<unsigned>(__cvta_generic_to_shared(shared_destination));
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(destination),
                 "l"(global_source), "r"(valid_bytes), "l"(policy)
                 : "memory");
}

// 4 bytes of global memory that nobody writes and that are read once: they take no place in L1. PTX ISA, "ld.global.nc",
// .level::eviction_priority.
//! Undefined: an address that is not 4-byte aligned or not in global memory, and bytes that anybody writes during
//! the launch, this thread too, before the load or after it (the emulator: `read_only_path`).
__device__ __forceinline__ unsigned load_once(const unsigned* source) {
    unsigned bits;
    asm("ld.global.nc.L1::no_allocate.b32 %0, [%1];" : "=r"(bits) : "l"(source));
    return bits;
}

}  // namespace gf
