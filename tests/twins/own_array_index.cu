// check --entry k --block 32 --arg a:int32[32]=zeros --arg y:int32[32]:out
// finds out_of_bounds
extern "C" __global__ void k(const int* a, int* y) { int v[8];
  for (int i = 0; i < 8; i++) v[i] = a[i] + i;
  y[threadIdx.x] = v[(threadIdx.x + a[0]) % 9]; }  // <<
