// check --entry k --block 64 --smem 1024 --arg a:float32[64] --arg y:float32[64]:out
// finds race
extern "C" __global__ void k(const float* a, float* y) { extern __shared__ char raw[]; float* f = (float*)raw; float* g = (float*)(raw + 63 * 4);
  f[threadIdx.x] = a[threadIdx.x]; g[threadIdx.x] = 1; __syncthreads(); y[threadIdx.x] = f[63 - threadIdx.x] + g[threadIdx.x]; }  // <<
