#pragma once
#include "gf/mbarrier.cuh"

namespace gf {

// The copy engine's description of a tensor of up to 4 dims: address, sizes, strides, the box that one copy
// moves, swizzle and fill. The launch encodes it; a kernel takes it by value, `const __grid_constant__
// gf::TensorMap name`, and passes its address. Coordinates count elements, innermost first, and may lie
// outside of the tensor: loads fill with zeros, stores leave out. Needs sm_90. PTX ISA, "Tensor-map".
//! Undefined: a map that is not 64-byte aligned, or lies elsewhere than in a parameter, constant or global memory, as
//! does a parameter without `__grid_constant__` (the emulator: `device_fault`); a map that the kernel writes; and a
//! copy with more or fewer coordinates than the map has dims.
struct alignas(64) TensorMap {
    unsigned long long words[16];
};

// Copy the box at (c0, c1, ...) to shared memory, aligned to 128 bytes (to the swizzle's 1,024, 512 or 256 where
// it has one), and complete the box's bytes on `barrier`. One thread runs it; the destination is undefined until
// the barrier's phase is over. PTX ISA, "cp.async.bulk.tensor".
//! Undefined: a destination that is not aligned so (the emulator: `misaligned`) or ends beyond shared memory
//! (`out_of_bounds`); a box that begins at no multiple of 16 bytes along the innermost dim (`misaligned`; an H200
//! ends the kernel with an illegal instruction); its bytes touched before the phase is over (`in_flight_read`,
//! `race`), or written by threads before without a proxy_fence_shared and a barrier (`race`); a barrier that does
//! not expect the whole box. Rows of a box that are shorter than its swizzle lie at multiples of it, with gaps. The
//! same for all overloads below.
__device__ __forceinline__ void tensor_load(void* shared, const TensorMap* map, unsigned long long* barrier,
                                            int c0) {
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3}], "
        "[%2];" ::"r"(shared_address(shared)),
        "l"(map), "r"(shared_address(barrier)), "r"(c0)
        : "memory");
}
__device__ __forceinline__ void tensor_load(void* shared, const TensorMap* map, unsigned long long* barrier,
                                            int c0, int c1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
        "%4}], [%2];" ::"r"(shared_address(shared)),
        "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1)
        : "memory");
}
__device__ __forceinline__ void tensor_load(void* shared, const TensorMap* map, unsigned long long* barrier,
                                            int c0, int c1, int c2) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
        "%5}], [%2];" ::"r"(shared_address(shared)),
        "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2)
        : "memory");
}
__device__ __forceinline__ void tensor_load(void* shared, const TensorMap* map, unsigned long long* barrier,
                                            int c0, int c1, int c2, int c3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
        "%5, %6}], [%2];" ::"r"(shared_address(shared)),
        "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}

// The same box to the same place in every block of the cluster whose bit of `rank_mask` is set; its bytes
// complete on the barrier at the same place in each of them. PTX ISA, ".multicast::cluster".
//! Undefined, too: a bit of `rank_mask` beyond the cluster, a block that has not initialised its barrier before a
//! cluster_sync, and one that ends before its bytes have come. The same for all overloads below.
__device__ __forceinline__ void tensor_load_multicast(void* shared, const TensorMap* map,
                                                      unsigned long long* barrier, unsigned short rank_mask,
                                                      int c0) {
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%4}], [%2], %3;" ::"r"(shared_address(shared)),
        "l"(map), "r"(shared_address(barrier)), "h"(rank_mask), "r"(c0)
        : "memory");
}
__device__ __forceinline__ void tensor_load_multicast(void* shared, const TensorMap* map,
                                                      unsigned long long* barrier, unsigned short rank_mask,
                                                      int c0, int c1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%4, %5}], [%2], %3;" ::"r"(shared_address(shared)),
        "l"(map), "r"(shared_address(barrier)), "h"(rank_mask), "r"(c0), "r"(c1)
        : "memory");
}
__device__ __forceinline__ void tensor_load_multicast(void* shared, const TensorMap* map,
                                                      unsigned long long* barrier, unsigned short rank_mask,
                                                      int c0, int c1, int c2) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(shared_address(shared)),
        "l"(map), "r"(shared_address(barrier)), "h"(rank_mask), "r"(c0), "r"(c1), "r"(c2)
        : "memory");
}
__device__ __forceinline__ void tensor_load_multicast(void* shared, const TensorMap* map,
                                                      unsigned long long* barrier, unsigned short rank_mask,
                                                      int c0, int c1, int c2, int c3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(shared_address(shared)),
        "l"(map), "r"(shared_address(barrier)), "h"(rank_mask), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}

// Copy a box from shared memory to the tensor; part of this thread's open group of bulk stores. What threads
// wrote to the box needs their proxy_fence_shared and a barrier before.
//! Undefined: a negative coordinate (the emulator: `device_fault`; an H200: an illegal instruction), though loads
//! take them; a box that is not 128-byte aligned or begins as none of tensor_load may (`misaligned`), that is
//! written again before bulk_wait_read, or whose block ends before it (`race`, `unwaited_copy`); the tensor's bytes
//! touched before bulk_wait, and boxes of stores that overlap. Where a row ends inside a run of 16 bytes of the
//! tensor, the bytes behind it in that run are overwritten, too (an H200 does it). The same for all overloads
//! below.
__device__ __forceinline__ void tensor_store(const TensorMap* map, const void* shared, int c0) {
    asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%1, {%2}], [%0];" ::"r"(
                     shared_address(shared)),
                 "l"(map), "r"(c0)
                 : "memory");
}
__device__ __forceinline__ void tensor_store(const TensorMap* map, const void* shared, int c0, int c1) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%1, {%2, %3}], [%0];" ::"r"(
                     shared_address(shared)),
                 "l"(map), "r"(c0), "r"(c1)
                 : "memory");
}
__device__ __forceinline__ void tensor_store(const TensorMap* map, const void* shared, int c0, int c1, int c2) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%1, {%2, %3, %4}], [%0];" ::"r"(
                     shared_address(shared)),
                 "l"(map), "r"(c0), "r"(c1), "r"(c2)
                 : "memory");
}
__device__ __forceinline__ void tensor_store(const TensorMap* map, const void* shared, int c0, int c1, int c2,
                                             int c3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%1, {%2, %3, %4, %5}], [%0];" ::"r"(
            shared_address(shared)),
        "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}

// Bring the map itself near, before its first use. PTX ISA, "prefetch.tensormap".
//! Undefined: an address that is not a TensorMap's.
__device__ __forceinline__ void tensor_prefetch(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Copy `bytes`, a multiple of 16, between addresses aligned to 16, as they lie; loads complete their bytes on
// `barrier`, stores join this thread's open group. PTX ISA, "cp.async.bulk".
//! Undefined: addresses or `bytes` that are not multiples of 16 (the emulator: `misaligned`), and what is undefined
//! of tensor_load and tensor_store; global memory that is written while a load still reads it (nothing reports that).
__device__ __forceinline__ void bulk_load(void* shared, const void* global, unsigned bytes,
                                          unsigned long long* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}
__device__ __forceinline__ void bulk_store(void* global, const void* shared, unsigned bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%1], [%0], %2;" ::"r"(shared_address(shared)),
                 "l"(global), "r"(bytes)
                 : "memory");
}

// Close this thread's group of bulk stores.
//! Undefined: nothing; a group without stores counts as finished.
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Wait until at most `groups_left_in_flight` of this thread's newest groups have not finished; with _read, have
// not read their shared memory, which may then be written again. PTX ISA, "cp.async.bulk.wait_group".
//! Undefined: nothing by itself; other threads' groups, and stores that were not committed, are not waited for. After
//! bulk_wait_read alone, what the stores wrote is not visible yet (the emulator: `race`).
template <int groups_left_in_flight>
__device__ __forceinline__ void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(groups_left_in_flight) : "memory");
}
template <int groups_left_in_flight>
__device__ __forceinline__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(groups_left_in_flight) : "memory");
}

// Order this thread's ordinary accesses to shared memory before later ones of the copy engine and the tensor
// cores, by whatever thread a barrier lets start them. PTX ISA, "fence.proxy.async".
//! Undefined: nothing by itself; without the barrier behind it, other threads' accesses stay unordered (the
//! emulator: `race`).
__device__ __forceinline__ void proxy_fence_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// The same for all memory.
//! Undefined: the same.
__device__ __forceinline__ void proxy_fence() { asm volatile("fence.proxy.async;" ::: "memory"); }

}  // namespace gf
