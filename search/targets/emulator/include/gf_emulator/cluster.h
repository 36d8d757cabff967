// Thread block clusters: what sm_90's device runtime declares (CUDA C++ Programming Guide, "Thread Block
// Clusters").
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/coordinates.h"
#include "gf_emulator/qualifiers.h"

__forceinline__ dim3 __clusterDim() { return gf_emulator_cluster_size(); }
__forceinline__ unsigned __clusterSizeInBlocks() {
    const uint3 size = gf_emulator_cluster_size();
    return size.x * size.y * size.z;
}
__forceinline__ bool __clusterDimIsSpecified() { return __clusterSizeInBlocks() > 1; }
__forceinline__ dim3 __clusterGridDimInClusters() {
    const uint3 grid = gf_emulator_grid_size(), size = gf_emulator_cluster_size();
    return {grid.x / size.x, grid.y / size.y, grid.z / size.z};
}
__forceinline__ dim3 __clusterIdx() {
    const uint3 block = gf_emulator_block_index(), size = gf_emulator_cluster_size();
    return {block.x / size.x, block.y / size.y, block.z / size.z};
}
__forceinline__ dim3 __clusterRelativeBlockIdx() {
    const uint3 block = gf_emulator_block_index(), size = gf_emulator_cluster_size();
    return {block.x % size.x, block.y % size.y, block.z % size.z};
}
__forceinline__ unsigned __clusterRelativeBlockRank() {
    const uint3 index = __clusterRelativeBlockIdx(), size = gf_emulator_cluster_size();
    return (index.z * size.y + index.y) * size.x + index.x;
}

__forceinline__ void __cluster_barrier_arrive() { gf_emulator_cluster_arrive(); }
__forceinline__ void __cluster_barrier_arrive_relaxed() { gf_emulator_cluster_arrive_relaxed(); }
__forceinline__ void __cluster_barrier_wait() { gf_emulator_cluster_wait(); }
__forceinline__ void* __cluster_map_shared_rank(const void* address, unsigned rank) {
    return gf_emulator_map_shared_rank((void*)address, rank);
}
