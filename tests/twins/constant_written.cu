// check --entry k --block 32 --arg y:int32[32]:out
// finds device_fault
__constant__ int table[32] = {1, 2, 3};
extern "C" __global__ void k(int* y) { const_cast<int&>(table[threadIdx.x]) = 1; y[threadIdx.x] = table[threadIdx.x]; }  // <<
