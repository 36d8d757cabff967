// Stands in for CUDA's cooperative_groups.h: blocks, clusters and grids, and the groups within a warp.
#pragma once
#include "cuda_runtime.h"
#include "gf_emulator/cluster.h"
#include "gf_emulator/cooperative_tiles.h"

namespace cooperative_groups {

class thread_block {
public:
    static __forceinline__ void sync(int line = __builtin_LINE()) { gf_emulator_sync(line); }
    static __forceinline__ dim3 group_dim() { return blockDim; }
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
    static __forceinline__ bool is_valid() { return true; }
    static __forceinline__ unsigned block_rank() { return __clusterRelativeBlockRank(); }
    static __forceinline__ unsigned num_blocks() { return __clusterSizeInBlocks(); }
    static __forceinline__ dim3 block_index() { return __clusterRelativeBlockIdx(); }
    static __forceinline__ dim3 dim_blocks() { return __clusterDim(); }
    static __forceinline__ unsigned num_threads() { return num_blocks() * thread_block::num_threads(); }
    static __forceinline__ unsigned thread_rank() {
        return block_rank() * thread_block::num_threads() + thread_block::thread_rank();
    }
    static __forceinline__ unsigned size() { return num_threads(); }
    static __forceinline__ dim3 dim_threads() {
        const dim3 blocks = dim_blocks();
        return {blocks.x * blockDim.x, blocks.y * blockDim.y, blocks.z * blockDim.z};
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
    static __forceinline__ dim3 thread_index() {
        return {blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y * blockDim.y + threadIdx.y,
                blockIdx.z * blockDim.z + threadIdx.z};
    }
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

// A group of any kind, as functions that are no templates take it.
class thread_group {
public:
    __forceinline__ thread_group(const thread_block&) : lanes_(0) {}
    __forceinline__ thread_group(const coalesced_group& group) : lanes_(group.lanes()) {}
    template <unsigned Size, class Parent>
    __forceinline__ thread_group(const thread_block_tile<Size, Parent>& tile) : lanes_(tile.lanes()) {
        static_assert(Size <= 32, "a tile of more than 32 threads is no thread_group here");
    }

    __forceinline__ void sync(int line = __builtin_LINE()) const { lanes_ ? __syncwarp(lanes_) : gf_emulator_sync(line); }
    __forceinline__ unsigned long long num_threads() const {
        return lanes_ ? unsigned(__popc(lanes_)) : thread_block::num_threads();
    }
    __forceinline__ unsigned long long size() const { return num_threads(); }
    __forceinline__ unsigned long long thread_rank() const {
        return lanes_ ? unsigned(__popc(lanes_ & gf_emulator::lanes_below())) : thread_block::thread_rank();
    }

private:
    friend __forceinline__ thread_group tiled_partition(const thread_group& parent, unsigned size);
    unsigned lanes_;  // 0: the whole block
};

// A block's tiles of `size` threads. A group within a warp is divided by ranks.
__forceinline__ thread_group tiled_partition(const thread_group& parent, unsigned size) {
    if (parent.lanes_) return tiled_partition(details::group_access::coalesced(parent.lanes_), size);
    if (size > 32 || (size & (size - 1))) gf_emulator_trap("a tile's size is a power of two up to 32");
    const unsigned first = gf_emulator_lane() & ~(size - 1);
    return details::group_access::coalesced((size == 32 ? ~0u : (1u << size) - 1) << first);
}
__forceinline__ thread_group tiled_partition(const thread_block& block, unsigned size) {
    return tiled_partition(thread_group(block), size);
}

__forceinline__ grid_group this_grid() { return {}; }
__forceinline__ thread_block this_thread_block() { return {}; }
template <unsigned Most>
__forceinline__ thread_block this_thread_block(block_tile_memory<Most>&) {
    return {};
}
namespace experimental {
using cooperative_groups::block_tile_memory;
using cooperative_groups::this_thread_block;
using cooperative_groups::tiled_partition;
}  // namespace experimental
__forceinline__ cluster_group this_cluster() { return {}; }
template <class Group>
__forceinline__ void sync(const Group& group, int line = __builtin_LINE()) {
    if constexpr (std::is_same_v<Group, thread_block> || std::is_same_v<Group, grid_group> ||
                  std::is_same_v<Group, thread_group>)
        group.sync(line);
    else
        group.sync();
}
template <class Group>
__forceinline__ auto thread_rank(const Group& group) {
    return group.thread_rank();
}
template <class Group>
__forceinline__ auto num_threads(const Group& group) {
    return group.num_threads();
}
template <class Group>
__forceinline__ auto group_size(const Group& group) {
    return group.num_threads();
}

// One thread of the group calls the function.
template <class Group, class Function, class... Arguments>
__forceinline__ void invoke_one(const Group& group, Function&& function, Arguments&&... arguments) {
    if (group.thread_rank() == 0) function(static_cast<Arguments&&>(arguments)...);
}
template <class Group, class Function, class... Arguments>
__forceinline__ auto invoke_one_broadcast(const Group& group, Function&& function, Arguments&&... arguments) {
    decltype(function(static_cast<Arguments&&>(arguments)...)) result{};
    if (group.thread_rank() == 0) result = function(static_cast<Arguments&&>(arguments)...);
    return group.shfl(result, 0);
}

}  // namespace cooperative_groups
