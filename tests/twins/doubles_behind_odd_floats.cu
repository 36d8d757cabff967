// check --entry k --block 64 --smem 1024 --arg a:float64[64] --arg y:float64[64]:out
// finds misaligned
extern "C" __global__ void k(const double* a, double* y) { extern __shared__ float raw[]; float* f = raw; double* s = (double*)(f + 33);
  s[threadIdx.x] = a[threadIdx.x]; f[threadIdx.x % 33] = 1; __syncthreads(); y[threadIdx.x] = s[63 - threadIdx.x]; }  // <<
