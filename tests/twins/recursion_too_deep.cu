// check --entry k --block 32 --arg y:int32[32]:out
// finds device_fault
__device__ int down(int n, int* y) { int big[64]; big[n % 64] = n; y[threadIdx.x] = n; return n == 0 ? 0 : down(n - 1, y) + big[(n * 7) % 64]; }  // <<
extern "C" __global__ void k(int* y) { y[threadIdx.x] = down(100000, y); }
