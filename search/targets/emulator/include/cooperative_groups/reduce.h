// Stands in for CUDA's cooperative_groups/reduce.h: reductions over a tile or a coalesced group.
#pragma once
#include "cooperative_groups.h"
#include "gf_emulator/group_operations.h"

namespace cooperative_groups {

// A tile folds by exchanging halves, as on the device; the order matters to floats.
template <class Group, class T, class Operation>
__forceinline__ auto reduce(const Group& group, T value, Operation&& operation) -> std::decay_t<T> {
    if constexpr (details::is_wide<Group>) {
        return group.fold(value, operation);
    } else {
        std::decay_t<T> sum = value;
        const unsigned count = group.count(), rank = group.rank();
        if ((count & (count - 1)) == 0) {
            for (unsigned step = count / 2; step; step /= 2)
                sum = operation(sum, gf_emulator::shuffle_from(group.lanes(), sum, group.lane_of(rank ^ step)));
            return sum;
        }
        unsigned step = 1;
        while (step < count) step *= 2;
        for (step /= 2; step; step /= 2) {
            const auto other = group.shfl_down(sum, step);
            if (rank + step < count && rank < step) sum = operation(sum, other);
        }
        return group.shfl(sum, 0);
    }
}

template <class Group, class T, class Atomic, class Operation>
__forceinline__ void reduce_update_async(const Group& group, Atomic& atomic, T value, Operation&& operation) {
    const T sum = reduce(group, value, operation);
    if (group.rank() == 0) gf_emulator::update_atomic(atomic, sum, operation);
}
template <class Group, class T, class Atomic, class Operation>
__forceinline__ void reduce_store_async(const Group& group, Atomic& atomic, T value, Operation&& operation) {
    const T sum = reduce(group, value, operation);
    if (group.rank() == 0) atomic.store(sum);
}

}  // namespace cooperative_groups
