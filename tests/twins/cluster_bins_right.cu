// check --entry k --block 64 --grid 2 --cluster 2 --arg x:int32[128]='range(0,16)' --arg y:int32[32]:out
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(const int* x, int* y) {
  __shared__ int bins[16];
  auto cluster = cg::this_cluster();
  if (threadIdx.x < 16) bins[threadIdx.x] = 0;
  cluster.sync();
  const int v = x[blockIdx.x * 64 + threadIdx.x];
  atomicAdd(cluster.map_shared_rank(bins, v & 1) + v / 2, 1);
  cluster.sync();
  if (threadIdx.x < 16) y[blockIdx.x * 16 + threadIdx.x] = bins[threadIdx.x];
}
