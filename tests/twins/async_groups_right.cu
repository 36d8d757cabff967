// check --entry k --block 32 --arg x:float32[1024] --arg y:float32[224]:out
#include <cuda_pipeline_primitives.h>
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[3][32]; const int t = threadIdx.x, n = 7;
  for (int i = 0; i < 2; i++) { __pipeline_memcpy_async(&s[i][t], x + i * 32 + t, 4); __pipeline_commit(); }
  for (int i = 0; i < n; i++) {
    if (i + 2 < n) __pipeline_memcpy_async(&s[(i + 2) % 3][t], x + (i + 2) * 32 + t, 4);
    __pipeline_commit();
    __pipeline_wait_prior(2);
    __syncwarp();
    y[i * 32 + t] = s[i % 3][t ^ 1];
    __syncwarp();
  }
}
