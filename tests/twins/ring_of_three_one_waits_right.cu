// check --entry k --block 96 --arg x:float32[704] --arg y:float32[704]:out --arg tiles=11
#include "gf/tensor_copy.cuh"
constexpr int stages = 3, width = 64;
extern "C" __global__ void k(const float* x, float* y, int tiles) {
  __shared__ alignas(128) float ring[stages][width];
  __shared__ unsigned long long full[stages], empty[stages];
  const int t = threadIdx.x;
  if (t == 0) {
    for (int i = 0; i < stages; i++) { gf::mbarrier_init(&full[i], 1); gf::mbarrier_init(&empty[i], 2); }
    gf::mbarrier_init_fence();
  }
  __syncthreads();
  if (t < 32) {
    if (t == 0) {
      int s = 0; unsigned phase = 1;
      for (int i = 0; i < tiles; i++) {
        gf::mbarrier_wait(&empty[s], phase);
        gf::mbarrier_expect_bytes(&full[s], width * 4);
        gf::bulk_load(ring[s], x + i * width, width * 4, &full[s]);
        if (++s == stages) { s = 0; phase ^= 1; }
      }
    }
  } else {
    const int lane = t - 32;
    int s = 0; unsigned phase = 0;
    for (int i = 0; i < tiles; i++) {
      if (lane % 32 == 0) gf::mbarrier_wait(&full[s], phase);
      __syncwarp();
      y[i * width + lane] = 2 * ring[s][lane];
      __syncwarp();
      if (lane % 32 == 31) gf::mbarrier_arrive(&empty[s]);
      if (++s == stages) { s = 0; phase ^= 1; }
    }
  }
}
