// check --entry k --block 32 --arg a:int32[32]=zeros --arg y:int32[32]:out
// finds out_of_bounds
__device__ int sum(const int* p, int n) { int s = 0; for (int i = 0; i < n; i++) s += p[i]; return s; }  // <<
extern "C" __global__ void k(const int* a, int* y) { int v[8];
  for (int i = 0; i < 8; i++) v[i] = a[i] + i;
  y[threadIdx.x] = sum(v, 8 + (a[threadIdx.x] == 0)); }
