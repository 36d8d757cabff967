// check --entry k --block 32 --arg a:int8[64]=65 --arg o:int32[32]:out
// finds out_of_bounds
extern "C" __global__ void k(const char* a, int* o) {
  o[threadIdx.x] = printf("%d %s\n", threadIdx.x, a + threadIdx.x);  // <<
}
