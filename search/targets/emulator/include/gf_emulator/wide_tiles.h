// Tiles of 64 to 512 threads: they meet at a barrier of their own, and exchange values in shared memory.
#pragma once
#include "gf_emulator/cooperative_tiles.h"

namespace cooperative_groups {

// The memory that such tiles need on devices before sm_80. It is not used here.
template <unsigned MostThreads = 1024>
struct block_tile_memory {
    unsigned long long unused[1];
};

namespace details {

template <class Group>
inline constexpr bool is_wide = false;

// 8 bytes for each thread of the block.
template <class Nothing = void>
__forceinline__ unsigned long long* tile_values() {
    static __shared__ unsigned long long values[1024];
    return values;
}

__forceinline__ unsigned rank_in_block() {
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}

}  // namespace details

template <unsigned Size, class Parent>
class thread_block_tile<Size, Parent, std::enable_if_t<(Size > 32)>> {
    static_assert(Size <= 512 && (Size & (Size - 1)) == 0, "a tile's size is a power of two up to 512");

public:
    thread_block_tile() = default;
    __forceinline__ thread_block_tile(unsigned meta_rank, unsigned meta_size)
        : meta_rank_(meta_rank), meta_size_(meta_size) {}
    template <class Other>
    __forceinline__ thread_block_tile(const thread_block_tile<Size, Other>& other)
        : meta_rank_(unsigned(other.meta_group_rank())), meta_size_(unsigned(other.meta_group_size())) {}

    static constexpr __forceinline__ unsigned long long num_threads() { return Size; }
    static constexpr __forceinline__ unsigned long long size() { return Size; }
    static __forceinline__ unsigned long long thread_rank() { return details::rank_in_block() % Size; }
    __forceinline__ unsigned long long meta_group_rank() const { return meta_rank_; }
    __forceinline__ unsigned long long meta_group_size() const { return meta_size_; }
    static __forceinline__ void sync() { gf_emulator_tile_barrier(Size); }

    template <class T>
    __forceinline__ T shfl(T value, int rank) const {
        static_assert(sizeof(T) <= 8, "a shuffle among more than 32 threads moves at most 8 bytes");
        unsigned long long* const own = values() + thread_rank();
        __builtin_memcpy(own, &value, sizeof value);
        sync();
        __builtin_memcpy(&value, values() + unsigned(rank) % Size, sizeof value);
        sync();
        return value;
    }
    // Warps by shuffles, then over the warps.
    template <class T, class Operation>
    __forceinline__ T fold(T value, const Operation& operation) const {
        static_assert(sizeof(T) <= 8, "a reduction among more than 32 threads is of at most 8 bytes");
        for (unsigned step = 16; step; step /= 2)
            value = operation(value, gf_emulator::shuffle_from(~0u, value, gf_emulator_lane() ^ step));
        if (thread_rank() % 32 == 0) __builtin_memcpy(values() + thread_rank() / 32, &value, sizeof value);
        sync();
        T all;
        __builtin_memcpy(&all, values(), sizeof all);
        for (unsigned warp = 1; warp < Size / 32; warp++) {
            T other;
            __builtin_memcpy(&other, values() + warp, sizeof other);
            all = operation(all, other);
        }
        sync();
        return all;
    }
    __forceinline__ int any(int predicate) const {
        return fold(predicate != 0, [](int a, int b) { return a | b; });
    }
    __forceinline__ int all(int predicate) const {
        return fold(predicate != 0, [](int a, int b) { return a & b; });
    }

private:
    static __forceinline__ unsigned long long* values() {
        return details::tile_values<>() + details::rank_in_block() / Size * Size;
    }
    unsigned meta_rank_ = 0, meta_size_ = 1;
};

namespace details {
template <unsigned Size, class Parent>
inline constexpr bool is_wide<thread_block_tile<Size, Parent>> = (Size > 32);
}

}  // namespace cooperative_groups
