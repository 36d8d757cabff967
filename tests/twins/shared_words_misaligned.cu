// check --entry k --block 32 --arg a:float32[256] --arg o:float32[256]:out
// finds misaligned
extern "C" __global__ void k(const float* a, float* o) { __shared__ float s[68];
  s[threadIdx.x] = a[threadIdx.x]; s[threadIdx.x+32]=1; __syncthreads();
  unsigned long long v = *reinterpret_cast<unsigned long long*>(s + threadIdx.x + 1); o[threadIdx.x] = v; }  // <<
