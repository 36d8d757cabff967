// Stands in for CUB's cub/block/block_scan.cuh: warps by shuffles, then the warps' sums from shared memory. The storage
// may be used again after a barrier, as in CUB.
#pragma once
#include "gf_emulator/cub_operations.h"

namespace cub {

enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

template <class T, int DimX, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int DimY = 1, int DimZ = 1>
class BlockScan {
    using Threads = gf::threads<DimX, DimY, DimZ>;

public:
    struct TempStorage : gf::used_in_turns {
        T of_warp[Threads::warps];
    };
    explicit __forceinline__ BlockScan(TempStorage& storage) : storage_(storage) {}

    template <class Operation>
    __forceinline__ void InclusiveScan(T value, T& result, Operation operation) {
        T before, all;
        scan(value, before, result, all, operation);
    }
    template <class Operation>
    __forceinline__ void InclusiveScan(T value, T& result, Operation operation, T& all) {
        T before;
        scan(value, before, result, all, operation);
    }
    // Thread 0's result is undefined without an initial value.
    template <class Operation>
    __forceinline__ void ExclusiveScan(T value, T& result, Operation operation) {
        T sum, all;
        scan(value, result, sum, all, operation);
    }
    template <class Operation>
    __forceinline__ void ExclusiveScan(T value, T& result, T initial, Operation operation) {
        T all;
        ExclusiveScan(value, result, initial, operation, all);
    }
    template <class Operation>
    __forceinline__ void ExclusiveScan(T value, T& result, T initial, Operation operation, T& all) {
        T before, sum;
        scan(value, before, sum, all, operation);
        result = Threads::rank() ? T(operation(initial, before)) : initial;
    }

    template <int items, class Operation>
    __forceinline__ void InclusiveScan(T (&values)[items], T (&results)[items], Operation operation) {
        T all;
        InclusiveScan(values, results, operation, all);
    }
    template <int items, class Operation>
    __forceinline__ void InclusiveScan(T (&values)[items], T (&results)[items], Operation operation, T& all) {
        T before, sum;
        scan(gf::folded(values, operation), before, sum, all, operation);
        for (int i = 0; i < items; i++) {
            before = i || Threads::rank() ? T(operation(before, values[i])) : values[i];
            results[i] = before;
        }
    }
    template <int items, class Operation>
    __forceinline__ void ExclusiveScan(T (&values)[items], T (&results)[items], T initial, Operation operation) {
        T all;
        ExclusiveScan(values, results, initial, operation, all);
    }
    template <int items, class Operation>
    __forceinline__ void ExclusiveScan(T (&values)[items], T (&results)[items], T initial, Operation operation,
                                       T& all) {
        T before, sum;
        scan(gf::folded(values, operation), before, sum, all, operation);
        before = Threads::rank() ? T(operation(initial, before)) : initial;
        for (int i = 0; i < items; i++) {
            const T value = values[i];
            results[i] = before;
            before = operation(before, value);
        }
    }

    __forceinline__ void InclusiveSum(T value, T& result) { InclusiveScan(value, result, Sum()); }
    __forceinline__ void InclusiveSum(T value, T& result, T& all) { InclusiveScan(value, result, Sum(), all); }
    __forceinline__ void ExclusiveSum(T value, T& result) { ExclusiveScan(value, result, T(), Sum()); }
    __forceinline__ void ExclusiveSum(T value, T& result, T& all) { ExclusiveScan(value, result, T(), Sum(), all); }
    template <int items>
    __forceinline__ void InclusiveSum(T (&values)[items], T (&results)[items]) {
        InclusiveScan(values, results, Sum());
    }
    template <int items>
    __forceinline__ void InclusiveSum(T (&values)[items], T (&results)[items], T& all) {
        InclusiveScan(values, results, Sum(), all);
    }
    template <int items>
    __forceinline__ void ExclusiveSum(T (&values)[items], T (&results)[items]) {
        ExclusiveScan(values, results, T(), Sum());
    }
    template <int items>
    __forceinline__ void ExclusiveSum(T (&values)[items], T (&results)[items], T& all) {
        ExclusiveScan(values, results, T(), Sum(), all);
    }
    // The first warp's threads call the function with the block's sum; what its lane 0 returns comes before all.
    template <class Operation, class Callback>
    __forceinline__ void InclusiveScan(T value, T& result, Operation operation, Callback& callback) {
        T before;
        scan_behind(value, before, result, operation, callback);
    }
    template <class Operation, class Callback>
    __forceinline__ void ExclusiveScan(T value, T& result, Operation operation, Callback& callback) {
        T sum;
        scan_behind(value, result, sum, operation, callback);
    }
    template <int items, class Operation, class Callback>
    __forceinline__ void InclusiveScan(T (&values)[items], T (&results)[items], Operation operation,
                                       Callback& callback) {
        T before, sum;
        scan_behind(gf::folded(values, operation), before, sum, operation, callback);
        for (int i = 0; i < items; i++) results[i] = before = operation(before, values[i]);
    }
    template <int items, class Operation, class Callback>
    __forceinline__ void ExclusiveScan(T (&values)[items], T (&results)[items], Operation operation,
                                       Callback& callback) {
        T before, sum;
        scan_behind(gf::folded(values, operation), before, sum, operation, callback);
        for (int i = 0; i < items; i++) {
            const T value = values[i];
            results[i] = before;
            before = operation(before, value);
        }
    }
    template <class Callback>
    __forceinline__ void ExclusiveSum(T value, T& result, Callback& callback) {
        ExclusiveScan(value, result, Sum(), callback);
    }
    template <class Callback>
    __forceinline__ void InclusiveSum(T value, T& result, Callback& callback) {
        InclusiveScan(value, result, Sum(), callback);
    }
    template <int items, class Callback>
    __forceinline__ void ExclusiveSum(T (&values)[items], T (&results)[items], Callback& callback) {
        ExclusiveScan(values, results, Sum(), callback);
    }
    template <int items, class Callback>
    __forceinline__ void InclusiveSum(T (&values)[items], T (&results)[items], Callback& callback) {
        InclusiveScan(values, results, Sum(), callback);
    }

private:
    // `before`: of the threads before this one; thread 0 has none.
    template <class Operation>
    __forceinline__ void scan(T value, T& before, T& sum, T& all, Operation operation) {
        const gf::turn turn(storage_, Threads::rank());
        const unsigned lanes = Threads::lanes();
        const int lane = Threads::lane(), warp = Threads::warp();
        sum = gf::prefix(lanes, 0, Threads::lane_count(), value, operation);
        before = gf_emulator::shuffle_from(lanes, sum, unsigned(lane ? lane - 1 : 0));
        if (lane == Threads::lane_count() - 1) storage_.of_warp[warp] = sum;
        __syncthreads();
        all = storage_.of_warp[0];
        T warps_before = all;
        for (int other = 1; other < Threads::warps; other++) {
            if (other == warp) warps_before = all;
            all = operation(all, storage_.of_warp[other]);
        }
        if (warp) {
            before = lane ? T(operation(warps_before, before)) : warps_before;
            sum = operation(warps_before, sum);
        } else if (lane == 0) {
            before = gf::nobodys<T>();
        }
    }
    // The same behind what the callback returns: thread 0's `before` is that.
    template <class Operation, class Callback>
    __forceinline__ void scan_behind(T value, T& before, T& sum, Operation operation, Callback& callback) {
        const gf::turn turn(storage_, Threads::rank());
        T all;
        scan(value, before, sum, all, operation);
        __syncthreads();
        if (Threads::warp() == 0) {
            const T first = callback(all);
            if (Threads::lane() == 0) storage_.of_warp[0] = first;
        }
        __syncthreads();
        const T first = storage_.of_warp[0];
        before = Threads::rank() ? T(operation(first, before)) : first;
        sum = operation(first, sum);
    }
    TempStorage& storage_;
};

}  // namespace cub
