// Emulated form of gf/mbarrier_remote.cuh.
#pragma once
#include "gf/mbarrier.cuh"

namespace gf {

__device__ __forceinline__ void mbarrier_arrive_rank_reader(unsigned long long* barrier, unsigned rank) {
    gf_emulator_mbarrier_arrive_rank(barrier, rank);
}

}  // namespace gf
