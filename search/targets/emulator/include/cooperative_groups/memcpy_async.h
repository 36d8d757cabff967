// Stands in for CUDA's cooperative_groups/memcpy_async.h: a group's threads share a copy, which runs asynchronously
// where it fills shared memory from global memory and is aligned to 4 bytes.
#pragma once
#include "cooperative_groups.h"
#include "gf_emulator/group_copy.h"

namespace cooperative_groups {

// Each call commits a batch of its own, which `wait_prior` counts.
template <class Group, class To, class From, class Size>
__forceinline__ void memcpy_async(const Group& group, To* destination, const From* source, const Size& bytes) {
    gf_emulator::group_copy(unsigned(group.thread_rank()), unsigned(group.num_threads()), (void*)destination,
                            (const void*)source, std::size_t(bytes));
    gf_emulator_async_copy_commit();
}
// By elements, of which there are as many as both sides have.
template <class Group, class To, class ToLayout, class From, class FromLayout>
__forceinline__ void memcpy_async(const Group& group, To* destination, const ToLayout& room, const From* source,
                                  const FromLayout& available) {
    const std::size_t to = std::size_t(room) * sizeof(To), from = std::size_t(available) * sizeof(From);
    memcpy_async(group, destination, source, to < from ? to : from);
}

template <unsigned Stage, class Group>
__forceinline__ void wait_prior(const Group& group) {
    gf_emulator_async_copy_wait(int(Stage));
    group.sync();
}
template <class Group>
__forceinline__ void wait(const Group& group) {
    gf_emulator_async_copy_wait(0);
    group.sync();
}

}  // namespace cooperative_groups
