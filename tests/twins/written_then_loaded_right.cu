// check --entry k --grid 1 --block 64 --arg x:float32[64] --arg work:float32[64]:workspace --arg y:float32[64]:out
#include "gf/tensor_copy.cuh"
extern "C" __global__ void k(const float* x, float* work, float* y) {
  __shared__ alignas(128) float tile[64];
  __shared__ unsigned long long full;
  const int t = threadIdx.x;
  if (t == 0) { gf::mbarrier_init(&full, 1); gf::mbarrier_init_fence(); }
  work[t] = 2 * x[t];
  gf::proxy_fence();
  __syncthreads();
  if (t == 0) {
    gf::mbarrier_expect_bytes(&full, 256);
    gf::bulk_load(tile, work, 256, &full);
  }
  gf::mbarrier_wait(&full, 0);
  y[t] = tile[t];
}
