// check --entry k --block 64 --arg x:float32[64] --arg work:float32[64]:workspace --arg y:float32[64]:out
#include "gf/tensor_copy.cuh"
extern "C" __global__ void k(const float* x, float* work, float* y) {
  __shared__ alignas(128) float tile[64];
  const int t = threadIdx.x;
  tile[t] = 2 * x[t];
  gf::proxy_fence_shared();
  __syncthreads();
  if (t == 0) {
    gf::bulk_store(work, tile, 256);
    gf::bulk_commit();
    gf::bulk_wait<0>();
  }
  __syncthreads();
  y[t] = work[63 - t];
}
