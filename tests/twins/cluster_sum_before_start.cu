// check --entry k --block 64 --grid 4 --cluster 4 --arg x:float32[256] --arg y:float32[4]:out
// finds device_fault
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float part[64]; __shared__ float total;
  auto cluster = cg::this_cluster();
  part[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  for (int s = 32; s; s /= 2) { if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s]; __syncthreads(); }
  if (threadIdx.x == 0) total = part[0];
  if (threadIdx.x == 0) { float all = 0; for (unsigned r = 0; r < 4; r++) all += *cluster.map_shared_rank(&total, r); y[blockIdx.x] = all; }  // <<
  cluster.sync();
}
