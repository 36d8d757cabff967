// check --entry k --block 32 --grid 8 --arg a:int32[256]=ones --arg y:int32[256]:out --arg flag:int32[8]=zeros:inout --arg value:int32[8]=zeros:inout
extern "C" __global__ void k(const int* a, int* y, int* flag, int* value) {
  const int t = threadIdx.x, b = blockIdx.x; __shared__ int before;
  int v = a[b * 32 + t];
  for (int d = 1; d < 32; d *= 2) { int o = __shfl_up_sync(~0u, v, d); if (t >= d) v += o; }
  if (t == 31) {
    int prefix = 0;
    if (b > 0) { while (atomicAdd(&flag[b - 1], 0) == 0) {} __threadfence(); prefix = value[b - 1]; }
    value[b] = prefix + v; __threadfence();
    atomicExch(&flag[b], 1); before = prefix;
  }
  __syncthreads();
  y[b * 32 + t] = v + before;
}
