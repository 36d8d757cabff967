// check --launch dependent.toml
#include "gf/dependent_launch.cuh"
extern "C" __global__ void first(const float* x, float* h) {
  const int t = blockIdx.x * 32 + threadIdx.x;
  gf::dependent_launch_allow();
  h[t] = 2 * x[t];
}
extern "C" __global__ void second(const float* x, const float* __restrict__ h, float* y) {
  __shared__ float w[32];
  const int t = blockIdx.x * 32 + threadIdx.x;
  w[threadIdx.x] = x[t];
  gf::dependent_launch_wait();
  __syncthreads();
  y[t] = w[31 - threadIdx.x] + h[t ^ 1];
}
