// check --entry k --block 96 --arg x:float32[1024] --arg y:float32[1024]:out
#include "gf/named_barrier.cuh"
__device__ void sync(int id, int n) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(n) : "memory"); }
__device__ void arrive(int id, int n) { asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(n) : "memory"); }
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float ring[2][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == 0) {            // producer
    for (int i = 0; i < 32; i++) {
      const int s = i & 1;
      if (i >= 2) sync(3 + s, 96);
      ring[s][lane] = x[i * 32 + lane];
      __threadfence_block();
      arrive(1 + s, 96);
    }
  } else {
    for (int i = 0; i < 32; i++) {
      const int s = i & 1;
      sync(1 + s, 96);
      if (warp == 1 + s) y[i * 32 + lane] = ring[s][lane] * 2;
      if (i + 2 < 32) arrive(3 + s, 96);
    }
  }
}
