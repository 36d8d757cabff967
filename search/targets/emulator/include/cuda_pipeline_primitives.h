// Stands in for CUDA's cuda_pipeline_primitives.h: the thread's own asynchronous copies.
#pragma once
#include "cuda_runtime.h"

__forceinline__ void __pipeline_memcpy_async(void* shared, const void* global, std::size_t bytes,
                                             std::size_t zero_filled = 0) {
    gf_emulator_async_copy(shared, global, int(bytes), int(bytes) - int(zero_filled));
}
__forceinline__ void __pipeline_commit() { gf_emulator_async_copy_commit(); }
__forceinline__ void __pipeline_wait_prior(std::size_t groups) { gf_emulator_async_copy_wait(int(groups)); }

using __mbarrier_t = unsigned long long;
__forceinline__ void __pipeline_arrive_on(__mbarrier_t* barrier) { gf_emulator_async_copy_arrive(barrier, true); }
