// check --entry k --block 64 --grid 4 --cluster 2 --arg x:float32[256] --arg y:float32[256]:out
#include <cooperative_groups.h>
#include <cuda/ptx>
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float inbox[64];
  auto cluster = cg::this_cluster();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  asm volatile("barrier.cluster.arrive.relaxed.aligned;");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  *cluster.map_shared_rank(&inbox[t], cluster.block_rank() ^ 1) = x[i];
  __threadfence();
  ptx::barrier_cluster_arrive(ptx::sem_relaxed);
  const float own = x[i];
  ptx::barrier_cluster_wait();
  y[i] = inbox[63 - t] + own;
  cluster.sync();
}
