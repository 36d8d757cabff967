// check --entry k --block 32 --arg a:int8[64]=65 --arg o:int32[32]:out
// finds uninitialised
extern "C" __global__ void k(const char* a, int* o) {
  __shared__ char own[4];
  o[threadIdx.x] = printf("%*d %s\n", 3, a[0], own);  // <<
}
