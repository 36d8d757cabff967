// Emulated form of gf/cluster.cuh: the blocks of a cluster share one worker and run in turns.
#pragma once
#include "gf_emulator/cluster.h"

namespace gf {

__device__ __forceinline__ unsigned cluster_rank() { return __clusterRelativeBlockRank(); }
__device__ __forceinline__ unsigned cluster_blocks() { return __clusterSizeInBlocks(); }
__device__ __forceinline__ uint3 cluster_size() { return gf_emulator_cluster_size(); }
__device__ __forceinline__ uint3 cluster_block_index() { return __clusterRelativeBlockIdx(); }
__device__ __forceinline__ uint3 cluster_index() { return __clusterIdx(); }

__device__ __forceinline__ void cluster_arrive() { gf_emulator_cluster_arrive(); }
__device__ __forceinline__ void cluster_wait() { gf_emulator_cluster_wait(); }
__device__ __forceinline__ void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}

template <class T>
__device__ __forceinline__ T* map_shared_rank(T* pointer, unsigned rank) {
    return static_cast<T*>(gf_emulator_map_shared_rank((void*)pointer, rank));
}

}  // namespace gf
