#pragma once

namespace gf {

// A barrier in shared memory that counts arrivals and bytes: `unsigned long long* barrier`, 8-byte aligned. Its
// phases alternate between parity 0, the first, and 1. A phase completes when its arrivals and the bytes that
// it expects have all come; the next begins at once, with the same number of arrivals. Needs sm_90. PTX ISA,
// "Parallel Synchronization and Communication Instructions: mbarrier".

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Prepare the barrier for phases of `arrivals` arrivals. One thread does it; others, the copy engine and other
// blocks may use it after mbarrier_init_fence and a barrier of the block (of the cluster, for other blocks).
__device__ __forceinline__ void mbarrier_init(unsigned long long* barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
}

// Makes this thread's mbarrier_init visible to the copy engine and to the cluster. PTX ISA,
// "fence.mbarrier_init".
__device__ __forceinline__ void mbarrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// End the barrier's life, so that its bytes can serve something else.
__device__ __forceinline__ void mbarrier_invalidate(unsigned long long* barrier) {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrive once; what this thread wrote before is visible to those who wait for the phase (release).
__device__ __forceinline__ void mbarrier_arrive(unsigned long long* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrive at the same barrier of the cluster's block `rank`; a block's own rank is allowed. PTX ISA, "mapa",
// "mbarrier.arrive.release.cluster".
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
__device__ __forceinline__ void mbarrier_expect_bytes(unsigned long long* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

// The same without an arrival.
__device__ __forceinline__ void mbarrier_expect_bytes_only(unsigned long long* barrier, unsigned bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

// Whether the phase of `parity` has completed; it may wait a little before it says no. After a yes, what those
// who arrived had written and what the copies brought is visible (acquire). A parity that lies a phase back is
// complete at once.
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
__device__ __forceinline__ void mbarrier_wait(unsigned long long* barrier, unsigned parity) {
    while (!mbarrier_try_wait(barrier, parity)) {
    }
}

}  // namespace gf
