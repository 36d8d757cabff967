// Stands in for CUB's cub/block/block_load.cuh and block_store.cuh. Each thread moves its own items, in blocks or, where
// the algorithm's name says so, striped.
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

template <class T, int DimX, int Items, BlockLoadAlgorithm algorithm = BLOCK_LOAD_DIRECT, int DimY = 1, int DimZ = 1>
class BlockLoad {
    using Threads = gf::threads<DimX, DimY, DimZ>;

public:
    using TempStorage = gf::no_storage;
    BlockLoad() = default;
    explicit __forceinline__ BlockLoad(TempStorage&) {}
    template <class Input>
    __forceinline__ void Load(Input from, T (&items)[Items]) {
        Load(from, items, Threads::count * Items);
    }
    template <class Input>
    __forceinline__ void Load(Input from, T (&items)[Items], int valid) {
        for (int i = 0; i < Items; i++)
            if (place(i) < valid) items[i] = from[place(i)];
    }
    template <class Input, class Default>
    __forceinline__ void Load(Input from, T (&items)[Items], int valid, Default rest) {
        for (int i = 0; i < Items; i++) items[i] = place(i) < valid ? T(from[place(i)]) : T(rest);
    }

private:
    static __forceinline__ int place(int i) {
        return algorithm == BLOCK_LOAD_STRIPED ? Threads::rank() + i * Threads::count : Threads::rank() * Items + i;
    }
};

template <class T, int DimX, int Items, BlockStoreAlgorithm algorithm = BLOCK_STORE_DIRECT, int DimY = 1, int DimZ = 1>
class BlockStore {
    using Threads = gf::threads<DimX, DimY, DimZ>;

public:
    using TempStorage = gf::no_storage;
    BlockStore() = default;
    explicit __forceinline__ BlockStore(TempStorage&) {}
    template <class Output>
    __forceinline__ void Store(Output to, T (&items)[Items], int valid = Threads::count * Items) {
        for (int i = 0; i < Items; i++)
            if (place(i) < valid) to[place(i)] = items[i];
    }

private:
    static __forceinline__ int place(int i) {
        return algorithm == BLOCK_STORE_STRIPED ? Threads::rank() + i * Threads::count : Threads::rank() * Items + i;
    }
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
