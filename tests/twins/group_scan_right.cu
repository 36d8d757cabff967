// check --entry k --block 128 --arg x:int32[128] --arg y:int32[128]:out --arg z:int32[128]:out
#include <cooperative_groups.h>
#include <cooperative_groups/scan.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(const int* x, int* y, int* z) {
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<32>(block);
  __shared__ int sums[4];
  const int v = x[threadIdx.x];
  int inc = cg::inclusive_scan(tile, v);
  int exc = cg::exclusive_scan(tile, v, cg::plus<int>());
  if (tile.thread_rank() == 31) sums[tile.meta_group_rank()] = inc;
  block.sync();
  int before = 0;
  for (unsigned i = 0; i < tile.meta_group_rank(); i++) before += sums[i];
  y[threadIdx.x] = inc + before; z[threadIdx.x] = exc + before;
}
