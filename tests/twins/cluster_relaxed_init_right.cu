// check --entry k --block 64 --grid 4 --cluster 2 --arg x:float32[256] --arg y:float32[256]:out
#include <cooperative_groups.h>
#include <cuda/ptx>
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float inbox[64];
  __shared__ cuda::std::uint64_t full;
  auto cluster = cg::this_cluster();
  const int t = threadIdx.x, i = blockIdx.x * 64 + t, peer = cluster.block_rank() ^ 1;
  if (t == 0) {
    ptx::mbarrier_init(&full, 64);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  ptx::barrier_cluster_arrive(ptx::sem_relaxed);
  ptx::barrier_cluster_wait();
  *cluster.map_shared_rank(&inbox[t], peer) = x[i];
  ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster, cluster.map_shared_rank(&full, peer));
  while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &full, 0)) {}
  y[i] = inbox[63 - t];
  cluster.sync();
}
