// Stands in for CUB's cub/warp/warp_scan.cuh.
#pragma once
#include "gf_emulator/cub_operations.h"

namespace cub {

template <class T, int LogicalThreads = 32>
class WarpScan {
    static_assert(LogicalThreads >= 1 && LogicalThreads <= 32, "a logical warp has 1 to 32 threads");

public:
    using TempStorage = gf::no_storage;
    explicit __forceinline__ WarpScan(TempStorage&) {}

    template <class Operation>
    __forceinline__ void InclusiveScan(T value, T& result, Operation operation) {
        result = gf::prefix(lanes(), first(), LogicalThreads, value, operation);
    }
    template <class Operation>
    __forceinline__ void InclusiveScan(T value, T& result, Operation operation, T& all) {
        InclusiveScan(value, result, operation);
        all = Broadcast(result, LogicalThreads - 1);
    }
    // The first lane's result is undefined without an initial value.
    template <class Operation>
    __forceinline__ void ExclusiveScan(T value, T& result, Operation operation) {
        const T sum = gf::prefix(lanes(), first(), LogicalThreads, value, operation);
        const T before = from_below(sum);
        result = rank() ? before : gf::nobodys<T>();
    }
    template <class Operation>
    __forceinline__ void ExclusiveScan(T value, T& result, T initial, Operation operation) {
        const T sum = gf::prefix(lanes(), first(), LogicalThreads, value, operation);
        const T before = from_below(sum);
        result = rank() ? T(operation(initial, before)) : initial;
    }
    template <class Operation>
    __forceinline__ void ExclusiveScan(T value, T& result, T initial, Operation operation, T& all) {
        const T sum = gf::prefix(lanes(), first(), LogicalThreads, value, operation);
        const T before = from_below(sum);
        all = Broadcast(sum, LogicalThreads - 1);
        result = rank() ? T(operation(initial, before)) : initial;
    }
    __forceinline__ void InclusiveSum(T value, T& result) { InclusiveScan(value, result, Sum()); }
    __forceinline__ void InclusiveSum(T value, T& result, T& all) { InclusiveScan(value, result, Sum(), all); }
    __forceinline__ void ExclusiveSum(T value, T& result) { ExclusiveScan(value, result, T(), Sum()); }
    __forceinline__ void ExclusiveSum(T value, T& result, T& all) { ExclusiveScan(value, result, T(), Sum(), all); }
    __forceinline__ T Broadcast(T value, unsigned source) {
        return gf_emulator::shuffle_from(lanes(), value, unsigned(first()) + source);
    }

private:
    static __forceinline__ int rank() { return int(gf_emulator_lane()) % LogicalThreads; }
    static __forceinline__ int first() { return int(gf_emulator_lane()) - rank(); }
    static __forceinline__ unsigned lanes() {
        return (LogicalThreads == 32 ? ~0u : (1u << LogicalThreads % 32) - 1) << first();
    }
    static __forceinline__ T from_below(const T& value) {
        return gf_emulator::shuffle_from(lanes(), value, unsigned(first() + (rank() ? rank() - 1 : 0)));
    }
};

}  // namespace cub
