// check --launch dependent_chain.toml
#include "gf/dependent_launch.cuh"
extern "C" __global__ void first(const float* x, float* a) {
  const int t = blockIdx.x * 32 + threadIdx.x;
  gf::dependent_launch_allow();
  a[t] = 2 * x[t];
}
extern "C" __global__ void second(const float* x, float* b) {
  const int t = blockIdx.x * 32 + threadIdx.x;
  gf::dependent_launch_allow();
  gf::dependent_launch_wait();  // for the first
  b[t] = 3 * x[t];
}
extern "C" __global__ void third(const float* a, const float* b, float* c) {
  const int t = blockIdx.x * 32 + threadIdx.x;
  gf::dependent_launch_wait();
  c[t] = a[t] + b[t];
}
