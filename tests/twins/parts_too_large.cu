// check --entry k --block 64 --smem 508 --arg a:float32[64] --arg y:float32[64]:out
// finds out_of_bounds
extern "C" __global__ void k(const float* a, float* y) { extern __shared__ char raw[]; float* f = (float*)raw; float* g = (float*)(raw + 64 * 4);
  f[threadIdx.x] = a[threadIdx.x]; g[threadIdx.x] = 1; __syncthreads(); y[threadIdx.x] = f[63 - threadIdx.x] + g[threadIdx.x]; }  // <<
