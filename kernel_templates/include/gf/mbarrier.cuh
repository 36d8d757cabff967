#pragma once

namespace gf {

// A barrier in shared memory that counts arrivals and bytes: `unsigned long long* barrier`, 8-byte aligned. Its
// phases alternate between parity 0, the first, and 1. A phase completes when its arrivals and the bytes that
// it expects have all come; the next begins at once, with the same number of arrivals. Needs sm_90. PTX ISA,
// "Parallel Synchronization and Communication Instructions: mbarrier".

//! Undefined, here and for every function below: a pointer that is not in the calling block's shared memory (the
//! emulator: `device_fault`).
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Prepare the barrier for phases of `arrivals` arrivals. One thread does it; others, the copy engine and other
// blocks may use it after mbarrier_init_fence and a barrier of the block (of the cluster, for other blocks).
//! Undefined: an address that is not 8-byte aligned (the emulator: `misaligned`), 0 arrivals or more than 2^20 - 1
//! (`device_fault`), and a barrier that was initialised before and not invalidated since (`race`). Until then its bytes
//! may not be read or written as data (`uninitialised`, `race`). Without this call no function below is defined.
__device__ __forceinline__ void mbarrier_init(unsigned long long* barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
}

// Makes this thread's mbarrier_init visible to the copy engine and to the cluster. PTX ISA,
// "fence.mbarrier_init".
//! Undefined: nothing by itself. It orders this thread's mbarrier_init only, and other threads need a barrier, too.
__device__ __forceinline__ void mbarrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// End the barrier's life, so that its bytes can serve something else.
//! Undefined: a barrier at which a thread still waits or arrives (the emulator: `uninitialised`), or on which a copy
//! has yet to complete.
__device__ __forceinline__ void mbarrier_invalidate(unsigned long long* barrier) {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrive once; what this thread wrote before is visible to those who wait for the phase (release).
//! Undefined: an arrival in a phase that waits for bytes alone. One that is too many and comes later counts for the
//! next phase, which then ends too early (the emulator: `race`, or `deadlock` where a wait misses its phase).
__device__ __forceinline__ void mbarrier_arrive(unsigned long long* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrive at the same barrier of the cluster's block `rank`; a block's own rank is allowed. PTX ISA, "mapa",
// "mbarrier.arrive.release.cluster".
//! Undefined, too: a rank beyond the cluster (the emulator: `out_of_bounds`), an arrival before a cluster_sync that
//! comes after the other block's mbarrier_init, and one after that block's end (`device_fault`). Only the threads of a
//! barrier's own block can wait at it.
__device__ __forceinline__ void mbarrier_arrive_rank(unsigned long long* barrier, unsigned rank) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(rank)
        : "memory");
}

// Arrive once, and let this phase expect `bytes` more bytes of asynchronous copies before it completes.
//! Undefined: more than 2^20 - 1 bytes pending in a phase, also as the sum of several calls (the emulator:
//! `device_fault`). Copies that bring more than is expected end the phase too early and count in the next
//! (`in_flight_read`); if they bring less, it never ends (`deadlock`).
__device__ __forceinline__ void mbarrier_expect_bytes(unsigned long long* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

// The same without an arrival.
//! Undefined: the same. The bytes belong to whichever phase is open, so an arrival that this phase needs has to be
//! ordered after this call (the emulator: `race`, `in_flight_read`).
__device__ __forceinline__ void mbarrier_expect_bytes_only(unsigned long long* barrier, unsigned bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

// Whether the phase of `parity` has completed; it may wait a little before it says no. After a yes, what those
// who arrived had written and what the copies brought is visible (acquire). A parity that lies a phase back is
// complete at once.
//! Undefined: a parity other than 0 and 1, and a phase older than the one before the current one: its parity is that
//! of a newer phase, so the answer is about that. The emulator finds this only where a schedule gets there.
__device__ __forceinline__ bool mbarrier_try_wait(unsigned long long* barrier, unsigned parity) {
    unsigned complete;
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
        "selp.u32 %0, 1, 0, complete;\n"
        "}"
        : "=r"(complete)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
    return complete != 0;
}

// Wait until the phase of `parity` has completed.
//! Undefined: the same. A phase that cannot complete is waited for without end (the emulator: `deadlock`).
__device__ __forceinline__ void mbarrier_wait(unsigned long long* barrier, unsigned parity) {
    while (!mbarrier_try_wait(barrier, parity)) {
    }
}

}  // namespace gf
