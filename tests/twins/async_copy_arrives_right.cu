// check --entry k --block 64 --arg x:float32[128] --arg y:float32[128]:out
#include "gf/mbarrier.cuh"
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ alignas(16) float tile[128];
  __shared__ unsigned long long full;
  const int t = threadIdx.x;
  if (t == 0) gf::mbarrier_init(&full, 32);
  __syncthreads();
  if (t < 32) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"(gf::shared_address(tile + 4 * t)), "l"(x + 4 * t));
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(gf::shared_address(&full)));
  } else {
    gf::mbarrier_wait(&full, 0);
    for (int i = 0; i < 4; i++) y[4 * (t - 32) + i] = tile[4 * (63 - t) + i];
  }
}
