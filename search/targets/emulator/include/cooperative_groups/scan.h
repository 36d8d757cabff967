// Stands in for CUDA's cooperative_groups/scan.h: prefix sums over a tile or a coalesced group.
#pragma once
#include "cooperative_groups.h"
#include "gf_emulator/group_operations.h"

namespace cooperative_groups {

template <class Group, class T, class Operation>
__forceinline__ auto inclusive_scan(const Group& group, T value, Operation&& operation) -> std::decay_t<T> {
    std::decay_t<T> sum = value;
    for (unsigned step = 1; step < group.count(); step *= 2) {
        const auto before = group.shfl_up(sum, step);
        if (group.rank() >= step) sum = operation(before, sum);
    }
    return sum;
}
template <class Group, class T>
__forceinline__ auto inclusive_scan(const Group& group, T value) {
    return inclusive_scan(group, value, plus<std::decay_t<T>>());
}
// The first thread gets the operation's neutral value.
template <class Group, class T, class Operation>
__forceinline__ auto exclusive_scan(const Group& group, T value, Operation&& operation) -> std::decay_t<T> {
    const auto before = group.shfl_up(inclusive_scan(group, value, operation), 1);
    return group.rank() ? before : details::neutral<std::decay_t<T>>(operation);
}
template <class Group, class T>
__forceinline__ auto exclusive_scan(const Group& group, T value) {
    return exclusive_scan(group, value, plus<std::decay_t<T>>());
}

// All threads add to one atomic, as if in the order of their ranks.
template <class Group, class Atomic, class T, class Operation>
__forceinline__ auto inclusive_scan_update(const Group& group, Atomic& atomic, T value, Operation&& operation) {
    const T sum = inclusive_scan(group, value, operation);
    T before{};
    if (group.rank() + 1 == group.count()) before = gf_emulator::update_atomic(atomic, sum, operation);
    before = group.shfl(before, int(group.count()) - 1);
    return operation(before, sum);
}
template <class Group, class Atomic, class T>
__forceinline__ auto inclusive_scan_update(const Group& group, Atomic& atomic, T value) {
    return inclusive_scan_update(group, atomic, value, plus<T>());
}
template <class Group, class Atomic, class T, class Operation>
__forceinline__ auto exclusive_scan_update(const Group& group, Atomic& atomic, T value, Operation&& operation) {
    const T sum = inclusive_scan(group, value, operation);
    T before{};
    if (group.rank() + 1 == group.count()) before = gf_emulator::update_atomic(atomic, sum, operation);
    before = group.shfl(before, int(group.count()) - 1);
    const T of_others = group.shfl_up(sum, 1);
    return group.rank() ? operation(before, of_others) : before;
}
template <class Group, class Atomic, class T>
__forceinline__ auto exclusive_scan_update(const Group& group, Atomic& atomic, T value) {
    return exclusive_scan_update(group, atomic, value, plus<T>());
}

}  // namespace cooperative_groups
