// check --entry k --block 32 --arg a:float32[256] --arg o:float32[256]:out
// finds misaligned
extern "C" __global__ void k(const float* a, float* o) { o[threadIdx.x] = 0; __syncthreads();
  atomicAdd((unsigned long long*)(o + 1), 2ull); }  // <<
