// Emulated form of gf/mbarrier.cuh.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/qualifiers.h"

namespace gf {

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return unsigned(gf_emulator_shared_offset(pointer));
}

__device__ __forceinline__ void mbarrier_init(unsigned long long* barrier, unsigned arrivals) {
    gf_emulator_mbarrier_init(barrier, arrivals);
}
__device__ __forceinline__ void mbarrier_init_fence() { gf_emulator_mbarrier_init_fence(); }
__device__ __forceinline__ void mbarrier_invalidate(unsigned long long* barrier) {
    gf_emulator_mbarrier_invalidate(barrier);
}
__device__ __forceinline__ void mbarrier_arrive(unsigned long long* barrier) { gf_emulator_mbarrier_arrive(barrier); }
__device__ __forceinline__ void mbarrier_arrive_rank(unsigned long long* barrier, unsigned rank) {
    gf_emulator_mbarrier_arrive_rank(barrier, rank);
}
__device__ __forceinline__ void mbarrier_expect_bytes(unsigned long long* barrier, unsigned bytes) {
    gf_emulator_mbarrier_expect(barrier, bytes, true);
}
__device__ __forceinline__ void mbarrier_expect_bytes_only(unsigned long long* barrier, unsigned bytes) {
    gf_emulator_mbarrier_expect(barrier, bytes, false);
}
__device__ __forceinline__ bool mbarrier_try_wait(unsigned long long* barrier, unsigned parity) {
    return gf_emulator_mbarrier_try_wait(barrier, parity);
}
__device__ __forceinline__ void mbarrier_wait(unsigned long long* barrier, unsigned parity) {
    gf_emulator_mbarrier_wait(barrier, parity);
}

}  // namespace gf
