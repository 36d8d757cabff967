// Stands in for CUDA's cooperative_groups.h: blocks, clusters and grids; tiles are not here.
#pragma once
#include "cuda_runtime.h"
#include "gf_emulator/cluster.h"

namespace cooperative_groups {

class thread_block {
public:
    static __forceinline__ void sync() { __syncthreads(); }
    static __forceinline__ dim3 group_index() { return blockIdx; }
    static __forceinline__ dim3 thread_index() { return threadIdx; }
    static __forceinline__ dim3 dim_threads() { return blockDim; }
    static __forceinline__ unsigned num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
    static __forceinline__ unsigned size() { return num_threads(); }
    static __forceinline__ unsigned thread_rank() {
        return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    }
};

class cluster_group {
public:
    struct arrival_token {};

    static __forceinline__ void sync() {
        __cluster_barrier_arrive();
        __cluster_barrier_wait();
    }
    static __forceinline__ arrival_token barrier_arrive() {
        __cluster_barrier_arrive();
        return {};
    }
    static __forceinline__ void barrier_wait() { __cluster_barrier_wait(); }
    static __forceinline__ void barrier_wait(arrival_token&&) { __cluster_barrier_wait(); }
    static __forceinline__ unsigned block_rank() { return __clusterRelativeBlockRank(); }
    static __forceinline__ unsigned num_blocks() { return __clusterSizeInBlocks(); }
    static __forceinline__ dim3 block_index() { return __clusterRelativeBlockIdx(); }
    static __forceinline__ dim3 dim_blocks() { return __clusterDim(); }
    static __forceinline__ unsigned num_threads() { return num_blocks() * thread_block::num_threads(); }
    static __forceinline__ unsigned thread_rank() {
        return block_rank() * thread_block::num_threads() + thread_block::thread_rank();
    }
    template <class T>
    static __forceinline__ T* map_shared_rank(T* address, int rank) {
        return static_cast<T*>(__cluster_map_shared_rank(address, unsigned(rank)));
    }
};

class grid_group {
public:
    static __forceinline__ bool is_valid() { return true; }
    static __forceinline__ void sync(int line = __builtin_LINE()) { gf_emulator_grid_barrier(line); }
    static __forceinline__ dim3 group_dim() { return gridDim; }
    static __forceinline__ dim3 dim_blocks() { return gridDim; }
    static __forceinline__ dim3 block_index() { return blockIdx; }
    static __forceinline__ unsigned long long num_blocks() {
        return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z;
    }
    static __forceinline__ unsigned long long block_rank() {
        return (static_cast<unsigned long long>(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    }
    static __forceinline__ unsigned long long num_threads() { return num_blocks() * thread_block::num_threads(); }
    static __forceinline__ unsigned long long size() { return num_threads(); }
    static __forceinline__ unsigned long long thread_rank() {
        return block_rank() * thread_block::num_threads() + thread_block::thread_rank();
    }
};

__forceinline__ grid_group this_grid() { return {}; }
__forceinline__ thread_block this_thread_block() { return {}; }
__forceinline__ cluster_group this_cluster() { return {}; }
template <class Group>
__forceinline__ void sync(const Group& group) {
    group.sync();
}

}  // namespace cooperative_groups
