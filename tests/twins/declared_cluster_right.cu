// check --entry k --block 32 --grid 4 --arg y:uint32[128]:out
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(unsigned* y) { auto c = cooperative_groups::this_cluster(); if (c.num_blocks() != 2) __trap();
 y[blockIdx.x * 32 + threadIdx.x] = c.num_blocks(); }
