// check --entry k --block 32 --arg y:int32[32]:out
__device__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
extern "C" __global__ void k(int* y) { y[threadIdx.x] = fib(threadIdx.x % 12); }
