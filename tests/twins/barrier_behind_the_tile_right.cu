// check --entry k --block 128 --smem 1024 --arg x:float32[128] --arg y:float32[128]:out
#include "gf/shared.cuh"
#include "gf/tensor_copy.cuh"
extern "C" __global__ void k(const float* x, float* y) {
  GF_DYNAMIC_SHARED(char, memory);
  float* tile = reinterpret_cast<float*>(memory);
  unsigned long long* full = reinterpret_cast<unsigned long long*>(memory + 512);
  const int t = threadIdx.x;
  if (t == 0) { gf::mbarrier_init(full, 1); gf::mbarrier_init_fence(); }
  __syncthreads();
  if (t == 0) { gf::mbarrier_expect_bytes(full, 512); gf::bulk_load(tile, x, 512, full);
  }
  gf::mbarrier_wait(full, 0);
  y[t] = tile[t];
}
