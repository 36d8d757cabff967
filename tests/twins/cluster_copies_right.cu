// check --entry k --block 64 --grid 2 --cluster 2 --arg x:int32[256] --arg y:int32[256]:out
#include <cuda/ptx>
#include <cooperative_groups.h>
namespace ptx = cuda::ptx; namespace cg = cooperative_groups;
extern "C" __global__ void k(const int* x, int* y) {
  __shared__ alignas(128) int tile[64];
  __shared__ uint64_t full;
  auto cluster = cg::this_cluster();
  const unsigned t = threadIdx.x, rank = cluster.block_rank();
  if (t == 0) { ptx::mbarrier_init(&full, 1); ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster); }
  ptx::barrier_cluster_arrive(); ptx::barrier_cluster_wait();
  if (t == 0) ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, 256);
  ptx::barrier_cluster_arrive(); ptx::barrier_cluster_wait();
  if (t == 0) ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, x, 256, &full);
  while (!ptx::mbarrier_try_wait_parity(&full, 0)) {}
  y[blockIdx.x * 128 + t] = tile[t]; y[blockIdx.x * 128 + 64 + t] = 0;
  ptx::barrier_cluster_arrive(); ptx::barrier_cluster_wait();
}
