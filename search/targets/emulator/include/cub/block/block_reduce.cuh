// Stands in for CUB's cub/block/block_reduce.cuh: warps by shuffles, then thread 0 over the warps' results. The result is
// thread 0's, and the storage may be used again after a barrier, as in CUB.
#pragma once
#include "gf_emulator/cub_operations.h"

namespace cub {

enum BlockReduceAlgorithm {
    BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
    BLOCK_REDUCE_RAKING,
    BLOCK_REDUCE_WARP_REDUCTIONS
};

template <class T, int DimX, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int DimY = 1, int DimZ = 1>
class BlockReduce {
    using Threads = gf::threads<DimX, DimY, DimZ>;

public:
    struct TempStorage : gf::used_in_turns {
        T of_warp[Threads::warps];
    };
    explicit __forceinline__ BlockReduce(TempStorage& storage) : storage_(storage) {}

    template <class Operation>
    __forceinline__ T Reduce(T value, Operation operation, int valid = Threads::count) {
        const gf::turn turn(storage_, Threads::rank());
        const int left = valid - Threads::warp() * 32;
        const int lanes = left < Threads::lane_count() ? left : Threads::lane_count();
        value = gf::fold(Threads::lanes(), 0, lanes, value, operation);
        if (Threads::lane() == 0 && lanes > 0) storage_.of_warp[Threads::warp()] = value;
        __syncthreads();
        if (Threads::rank()) return gf::nobodys<T>();
        for (int warp = 1; warp * 32 < valid && warp < Threads::warps; warp++)
            value = operation(value, storage_.of_warp[warp]);
        return value;
    }
    template <int items, class Operation>
    __forceinline__ T Reduce(T (&values)[items], Operation operation) {
        return Reduce(gf::folded(values, operation), operation);
    }
    __forceinline__ T Sum(T value) { return Reduce(value, cub::Sum()); }
    __forceinline__ T Sum(T value, int valid) { return Reduce(value, cub::Sum(), valid); }
    template <int items>
    __forceinline__ T Sum(T (&values)[items]) {
        return Reduce(values, cub::Sum());
    }

private:
    TempStorage& storage_;
};

}  // namespace cub
