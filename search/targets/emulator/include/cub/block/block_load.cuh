// Stands in for CUB's cub/block/block_load.cuh and block_store.cuh. Items are moved in blocks or, where the algorithm's
// name says so, striped. An algorithm that transposes passes them through its storage, which may be used again after a
// barrier, as in CUB.
#pragma once
#include "gf_emulator/cub_operations.h"

namespace cub {

enum BlockLoadAlgorithm {
    BLOCK_LOAD_DIRECT,
    BLOCK_LOAD_STRIPED,
    BLOCK_LOAD_VECTORIZE,
    BLOCK_LOAD_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};
enum BlockStoreAlgorithm {
    BLOCK_STORE_DIRECT,
    BLOCK_STORE_STRIPED,
    BLOCK_STORE_VECTORIZE,
    BLOCK_STORE_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};

namespace gf {

enum class passage { none, warp, block };  // whose items are transposed together

struct no_turn {  // a warp's part of the storage needs no barrier of the block
    __forceinline__ no_turn(used_in_turns&, int) {}
};

// The places of a thread's items in memory, and in the storage through which they pass.
template <class T, class Threads, int items, passage way>
struct passed_items {
    struct storage : used_in_turns {
        T all[Threads::count * items];
    };
    static __forceinline__ int blocked(int i) { return Threads::rank() * items + i; }
    static __forceinline__ int striped(int i) {
        if (way == passage::warp) return Threads::warp() * 32 * items + Threads::lane() + i * 32;
        return Threads::rank() + i * Threads::count;
    }
    using turn_taken = std::conditional_t<way == passage::block, turn, no_turn>;
    static __forceinline__ void meet() {
        if (way == passage::warp)
            __syncwarp(Threads::lanes());
        else
            __syncthreads();
    }
};
template <class T, class Threads, int items>
struct passed_items<T, Threads, items, passage::none> {
    using storage = no_storage;
};

}  // namespace gf

template <class T, int DimX, int Items, BlockLoadAlgorithm algorithm = BLOCK_LOAD_DIRECT, int DimY = 1, int DimZ = 1>
class BlockLoad {
    using Threads = gf::threads<DimX, DimY, DimZ>;
    static constexpr gf::passage way = algorithm == BLOCK_LOAD_TRANSPOSE             ? gf::passage::block
                                       : algorithm == BLOCK_LOAD_WARP_TRANSPOSE ||
                                               algorithm == BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
                                           ? gf::passage::warp
                                           : gf::passage::none;
    using Passed = gf::passed_items<T, Threads, Items, way>;

public:
    using TempStorage = typename Passed::storage;
    BlockLoad() = default;
    explicit __forceinline__ BlockLoad(TempStorage& storage) : storage_(&storage) {}
    template <class Input>
    __forceinline__ void Load(Input from, T (&items)[Items]) {
        Load(from, items, Threads::count * Items);
    }
    template <class Input>
    __forceinline__ void Load(Input from, T (&items)[Items], int valid) {
        if constexpr (way != gf::passage::none)
            if (storage_) {
                const typename Passed::turn_taken turn(*storage_, Threads::rank());
                for (int i = 0; i < Items; i++)
                    if (const int at = Passed::striped(i); at < valid) storage_->all[at] = from[at];
                Passed::meet();
                for (int i = 0; i < Items; i++)
                    if (const int at = Passed::blocked(i); at < valid) items[i] = storage_->all[at];
                return;
            }
        for (int i = 0; i < Items; i++)
            if (place(i) < valid) items[i] = from[place(i)];
    }
    template <class Input, class Default>
    __forceinline__ void Load(Input from, T (&items)[Items], int valid, Default rest) {
        for (int i = 0; i < Items; i++) items[i] = T(rest);
        Load(from, items, valid);
    }

private:
    static __forceinline__ int place(int i) {
        return algorithm == BLOCK_LOAD_STRIPED ? Threads::rank() + i * Threads::count : Threads::rank() * Items + i;
    }

    TempStorage* storage_ = nullptr;  // null: one of its own, which nothing else uses
};

template <class T, int DimX, int Items, BlockStoreAlgorithm algorithm = BLOCK_STORE_DIRECT, int DimY = 1, int DimZ = 1>
class BlockStore {
    using Threads = gf::threads<DimX, DimY, DimZ>;
    static constexpr gf::passage way = algorithm == BLOCK_STORE_TRANSPOSE             ? gf::passage::block
                                       : algorithm == BLOCK_STORE_WARP_TRANSPOSE ||
                                               algorithm == BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
                                           ? gf::passage::warp
                                           : gf::passage::none;
    using Passed = gf::passed_items<T, Threads, Items, way>;

public:
    using TempStorage = typename Passed::storage;
    BlockStore() = default;
    explicit __forceinline__ BlockStore(TempStorage& storage) : storage_(&storage) {}
    template <class Output>
    __forceinline__ void Store(Output to, T (&items)[Items], int valid = Threads::count * Items) {
        if constexpr (way != gf::passage::none)
            if (storage_) {
                const typename Passed::turn_taken turn(*storage_, Threads::rank());
                for (int i = 0; i < Items; i++) storage_->all[Passed::blocked(i)] = items[i];
                Passed::meet();
                for (int i = 0; i < Items; i++)
                    if (const int at = Passed::striped(i); at < valid) to[at] = storage_->all[at];
                return;
            }
        for (int i = 0; i < Items; i++)
            if (place(i) < valid) to[place(i)] = items[i];
    }

private:
    static __forceinline__ int place(int i) {
        return algorithm == BLOCK_STORE_STRIPED ? Threads::rank() + i * Threads::count : Threads::rank() * Items + i;
    }

    TempStorage* storage_ = nullptr;  // null: one of its own, which nothing else uses
};

template <class Input, class T, int items>
__forceinline__ void LoadDirectBlocked(int thread, Input from, T (&values)[items]) {
    for (int i = 0; i < items; i++) values[i] = from[thread * items + i];
}
template <int threads, class Input, class T, int items>
__forceinline__ void LoadDirectStriped(int thread, Input from, T (&values)[items]) {
    for (int i = 0; i < items; i++) values[i] = from[thread + i * threads];
}
template <class Output, class T, int items>
__forceinline__ void StoreDirectBlocked(int thread, Output to, T (&values)[items]) {
    for (int i = 0; i < items; i++) to[thread * items + i] = values[i];
}
template <int threads, class Output, class T, int items>
__forceinline__ void StoreDirectStriped(int thread, Output to, T (&values)[items]) {
    for (int i = 0; i < items; i++) to[thread + i * threads] = values[i];
}

}  // namespace cub
