// check --entry k --block 64 --arg x:int32[256] --arg y:int32[256]:out
#include <cuda/ptx>
namespace ptx = cuda::ptx;
extern "C" __global__ void k(const int* x, int* y) {
  __shared__ alignas(128) int tile[2][64];
  __shared__ uint64_t full[2];
  const unsigned t = threadIdx.x;
  if (t < 32 && t == 0) { ptx::mbarrier_init(&full[0], 1); ptx::mbarrier_init(&full[1], 1); ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster); 
    for (int s = 0; s < 2; s++) { ptx::mbarrier_expect_tx(ptx::sem_relaxed, ptx::scope_cta, ptx::space_shared, &full[s], 256); ptx::cp_async_bulk(ptx::space_shared, ptx::space_global, tile[s], x + 64 * s, 256, &full[s]); ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[s]); } }
  __syncthreads();
  for (int s = 0; s < 2; s++) { while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cta, &full[s], 0u)) {} y[s * 64 + t] = tile[s][t]; y[128 + s * 64 + t] = 1; }
}
