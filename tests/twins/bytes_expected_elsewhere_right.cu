// check --entry k --block 64 --arg x:float32[128] --arg y:float32[128]:out
#include "gf/tensor_copy.cuh"
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ alignas(128) float tile[2][64];
  __shared__ unsigned long long full[2];
  const int t = threadIdx.x;
  if (t == 0) { for (int s = 0; s < 2; s++) gf::mbarrier_init(&full[s], 1); gf::mbarrier_init_fence(); }
  __syncthreads();
  for (int i = 0; i < 2; i++) {
    if (t == 0) { gf::bulk_load(tile[i], x + 64 * i, 256, &full[i]); }
    if (t == 32) { gf::mbarrier_expect_bytes(&full[i], 256); }
    gf::mbarrier_wait(&full[i], 0);
    y[64 * i + t] = tile[i][t];
  }
}
