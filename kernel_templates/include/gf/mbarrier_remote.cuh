#pragma once
#include "gf/mbarrier.cuh"

namespace gf {

// mbarrier_arrive_rank (gf/mbarrier.cuh) by a thread that has only read what the arrival sets free: by products
// that it has waited for, or by ordinary loads. What it wrote needs mbarrier_arrive_rank, whose release at the
// cluster's scope becomes a fence of the whole GPU (MEMBAR.ALL.GPU). PTX ISA, "mapa", "mbarrier.arrive".
//! Undefined: what is undefined of mbarrier_arrive_rank. What this thread wrote need not be visible to the block
//! that waits.
__device__ __forceinline__ void mbarrier_arrive_rank_reader(unsigned long long* barrier, unsigned rank) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(rank)
        : "memory");
}

}  // namespace gf
