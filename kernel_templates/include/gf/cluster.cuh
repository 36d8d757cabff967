#pragma once

namespace gf {

// Where a block stands in its thread block cluster. Ranks count x first, then y, then z. A kernel declares its
// clusters, __cluster_dims__(2, 1, 1) before its name, and its template's toml says the same: cluster = ["2",
// "1", "1"] under [[launches]]. Without one a block is a cluster of its own. Needs sm_90. PTX ISA, "%cluster_ctarank", "%cluster_nctarank".
//! Undefined: nothing.
__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ __forceinline__ unsigned cluster_blocks() {
    unsigned blocks;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    return blocks;
}

// The cluster's extent in blocks, the block's index in its cluster, and the cluster's index in the grid. PTX
// ISA, "%cluster_nctaid", "%cluster_ctaid", "%clusterid".
//! Undefined: nothing.
__device__ __forceinline__ uint3 cluster_size() {
    uint3 size;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size.x));
    asm("mov.u32 %0, %%cluster_nctaid.y;" : "=r"(size.y));
    asm("mov.u32 %0, %%cluster_nctaid.z;" : "=r"(size.z));
    return size;
}
__device__ __forceinline__ uint3 cluster_block_index() {
    uint3 index;
    asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(index.x));
    asm("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(index.y));
    asm("mov.u32 %0, %%cluster_ctaid.z;" : "=r"(index.z));
    return index;
}
__device__ __forceinline__ uint3 cluster_index() {
    uint3 index;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(index.x));
    asm("mov.u32 %0, %%clusterid.y;" : "=r"(index.y));
    asm("mov.u32 %0, %%clusterid.z;" : "=r"(index.z));
    return index;
}

// The cluster's barrier in two halves, run by every thread of every block in turn: what a thread wrote before
// it arrived is seen by all who have waited. Undefined when a thread arrives twice without waiting, or waits
// without having arrived. PTX ISA, "Parallel Synchronization and Communication Instructions:
// barrier.cluster".
//! Undefined: nothing else. A thread that has exited is not waited for; one that neither arrives nor exits keeps the
//! cluster waiting for ever (the emulator: `deadlock`).
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}

// The address, in the shared memory of the cluster's block `rank`, of what `pointer` is in the calling
// block's (distributed shared memory); it can be read, written and used by atomics. Undefined before the
// first cluster_sync (the other block may not have started), after that block's end, and for a rank beyond
// the cluster. PTX ISA, "Data Movement and Conversion Instructions: mapa".
//! Undefined, too: a pointer that is not in the calling block's shared memory. A cluster_sync at the end keeps a block
//! until the others have left its memory (the emulator, without it: `device_fault`).
template <class T>
__device__ __forceinline__ T* map_shared_rank(T* pointer, unsigned rank) {
    unsigned long long address;
    asm("mapa.u64 %0, %1, %2;"
        : "=l"(address)
        : "l"(reinterpret_cast<unsigned long long>(pointer)), "r"(rank));
    return reinterpret_cast<T*>(address);
}

}  // namespace gf
