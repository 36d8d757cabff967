// check --entry k --block 64 --arg x:float32[128] --arg y:float32[128]:out
#include "gf/tensor_copy.cuh"
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ alignas(128) float tile[128];
  __shared__ unsigned long long full;
  const int t = threadIdx.x;
  if (t == 0) { gf::mbarrier_init(&full, 2); gf::mbarrier_init_fence(); }
  __syncthreads();
  if (t == 0) { gf::mbarrier_expect_bytes(&full, 256); gf::bulk_load(tile, x, 256, &full); }
  if (t == 32) { gf::mbarrier_expect_bytes(&full, 256); gf::bulk_load(tile + 64, x + 64, 256, &full); }
  gf::mbarrier_wait(&full, 0);
  y[t] = tile[t]; y[t + 64] = tile[t + 64];
}
