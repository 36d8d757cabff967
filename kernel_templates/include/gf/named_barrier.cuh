#pragma once

namespace gf {

// Wait at the block's barrier `id` (1 to 15; 0 is that of __syncthreads) until `thread_count` threads, a
// multiple of 32, have come to it by either function. What each of them wrote before is then visible to those
// that wait. Whole warps come together. Undefined when two threads name different counts for one use of the
// barrier; a count that nobody completes never ends. PTX ISA, "Parallel Synchronization and Communication
// Instructions: bar, barrier" (bar.sync).
//! Undefined, too: an id beyond 15, a count that is 0 or not a multiple of 32, a call in diverged code, and id 0 while
//! a __syncthreads uses it. The emulator: `deadlock`, `divergence`.
__device__ __forceinline__ void named_barrier_sync(int id, int thread_count) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(thread_count) : "memory");
}

// Come to the barrier without waiting: for those who produce what others wait for (bar.arrive).
//! Undefined: the same, and a thread that comes again before the barrier it arrived at is complete.
__device__ __forceinline__ void named_barrier_arrive(int id, int thread_count) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(thread_count) : "memory");
}

}  // namespace gf
