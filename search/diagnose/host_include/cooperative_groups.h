// The types that declarations of device functions name.
#pragma once
#include "cuda_runtime.h"

namespace cooperative_groups {
struct thread_group {};
struct thread_block : thread_group {};
struct grid_group : thread_group {};
struct cluster_group : thread_group {};
struct coalesced_group : thread_group {};
struct multi_grid_group : thread_group {};
template <unsigned size, class Parent = void> struct thread_block_tile : thread_group {};
}  // namespace cooperative_groups
