// check --entry k --block 64 --arg x:float32[320] --arg y:float32[320]:out
#include "gf/tensor_copy.cuh"
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ alignas(128) float tile[64];
  __shared__ unsigned long long full;
  const int t = threadIdx.x;
  if (t == 0) { gf::mbarrier_init(&full, 1); gf::mbarrier_init_fence(); }
  __syncthreads();
  for (int i = 0; i < 5; i++) {
    if (t == 0) {
      gf::bulk_wait_read<0>();
      gf::mbarrier_expect_bytes(&full, 256);
      gf::bulk_load(tile, x + 64 * i, 256, &full);
    }
    gf::mbarrier_wait(&full, i & 1);
    tile[t] *= 2;
    gf::proxy_fence_shared();
    __syncthreads();
    if (t == 0) {
      gf::bulk_store(y + 64 * i, tile, 256);
      gf::bulk_commit();
    }
  }
  if (t == 0) gf::bulk_wait<0>();
}
