// Stands in for CUB's cub/warp/warp_reduce.cuh. The result is the first lane's, as in CUB.
#pragma once
#include "gf_emulator/cub_operations.h"

namespace cub {

template <class T, int LogicalThreads = 32>
class WarpReduce {
    static_assert(LogicalThreads >= 1 && LogicalThreads <= 32, "a logical warp has 1 to 32 threads");

public:
    using TempStorage = gf::no_storage;
    explicit __forceinline__ WarpReduce(TempStorage&) {}

    template <class Operation>
    __forceinline__ T Reduce(T value, Operation operation, int valid = LogicalThreads) {
        const int lane = int(gf_emulator_lane()), first = lane / LogicalThreads * LogicalThreads;
        const unsigned all = LogicalThreads == 32 ? ~0u : (1u << LogicalThreads % 32) - 1;
        const T sum = gf::fold(all << first, first, valid, value, operation);
        return lane == first ? sum : gf::nobodys<T>();
    }
    __forceinline__ T Sum(T value) { return Reduce(value, cub::Sum()); }
    __forceinline__ T Sum(T value, int valid) { return Reduce(value, cub::Sum(), valid); }
    __forceinline__ T Max(T value) { return Reduce(value, cub::Max()); }
    __forceinline__ T Min(T value) { return Reduce(value, cub::Min()); }
};

}  // namespace cub
