// check --entry k --block 64 --arg x:float32[64] --arg y:float32[64]:out
#include "gf/elect.cuh"
#include "gf/tensor_copy.cuh"
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ alignas(128) float tile[64];
  const int t = threadIdx.x;
  tile[t] = x[t];
  gf::proxy_fence_shared();
  __syncthreads();
  if (t < 32) {
    if (gf::elect_thread()) { gf::bulk_store(y, tile, 256); gf::bulk_commit(); gf::bulk_wait<0>(); }
  }
}
