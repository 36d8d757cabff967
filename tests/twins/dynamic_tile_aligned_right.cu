// check --launch dynamic_tile_aligned.toml
#include <cuda.h>
#include <cuda/ptx>
namespace ptx = cuda::ptx;
extern "C" __global__ void k(const __grid_constant__ CUtensorMap m, float* y) {
  extern __shared__ __align__(1024) unsigned char tile[];
  __shared__ uint64_t full;
  const int t = threadIdx.x;
  if (t == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    const int corner[2] = {0, 0};
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &m, corner, &full);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, 1024u);
  }
  __syncthreads();
  while (!ptx::mbarrier_try_wait_parity(&full, 0)) {}
  for (int row = 0; row < 8; row++)
    y[row * 32 + t] = *reinterpret_cast<const float*>(tile + row * 128 + (t / 4 ^ row) * 16 + t % 4 * 4);
}
