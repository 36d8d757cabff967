// check --entry k --block 32 --arg y:int32[32]:out
// finds out_of_bounds
__constant__ int table[31] = {1, 2, 3};
extern "C" __global__ void k(int* y) { y[threadIdx.x] = table[threadIdx.x]; }  // <<
