// check --entry k --block 32 --arg a:float32[1024] --arg y:float32[32]:out --arg n:uint32=0
// finds out_of_bounds
extern "C" __global__ void k(const float* a, float* y, unsigned n) { y[threadIdx.x] = a[threadIdx.x + (n - 1)]; }  // <<
