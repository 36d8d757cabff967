// check --entry k --grid 2 --block 32 --cluster 2 --arg y:int32[64]:out
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/ptx>
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
extern "C" __global__ void k(int* y) {
  __shared__ int inbox[4];
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  auto cluster = cg::this_cluster();
  const int t = threadIdx.x, other = cluster.block_rank() ^ 1;
  if (t == 0) init(&bar, blockDim.x);
  cluster.sync();
  uint64_t* own = cuda::device::barrier_native_handle(bar);
  uint64_t* there = cluster.map_shared_rank(own, other);
  uint64_t token;
  if (t == 0) token = ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cluster, ptx::space_shared, own, sizeof inbox);
  else token = ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_shared, own);
  if (t == 0) ptx::st_async(cluster.map_shared_rank(inbox, other), {other, 1, 2, 3}, there);
  while (!ptx::mbarrier_try_wait(ptx::sem_acquire, ptx::scope_cluster, own, token)) {}
  y[blockIdx.x * 32 + t] = inbox[t % 4];
  cluster.sync();
}
