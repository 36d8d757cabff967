// check --entry k --block 32 --grid 12 --arg x:int32[384] --arg y:int32[384]:out --arg sum:int32[12]:workspace --arg all:int32[12]:workspace --arg flag:int32[12]=zeros --arg ticket:uint32[1]=zeros
// Flags beside the values: 1 where a tile's own sum is there, 2 where that of all tiles up to it is.
extern "C" __global__ void k(const int* x, int* y, int* sum, int* all, int* flag, unsigned* ticket) {
  __shared__ int before; __shared__ unsigned mine;
  int *vsum = sum, *vall = all;
  if (threadIdx.x == 0) mine = atomicAdd(ticket, 1u);
  __syncthreads();
  const int t = threadIdx.x, tile = mine;
  int v = x[tile * 32 + t];
  for (int d = 1; d < 32; d *= 2) { int o = __shfl_up_sync(~0u, v, d); if (t >= d) v += o; }
  if (t == 31) {
    int prefix = 0;
    if (tile) {
      sum[tile] = v;
      asm volatile("st.release.gpu.global.s32 [%0], 1;" :: "l"(flag + tile) : "memory");
    }
    for (int p = tile - 1; p >= 0; p--) {
      int f;
      do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(f) : "l"(flag + p) : "memory"); while (!f);
      if (f == 2) { prefix += vall[p]; break; }
      prefix += vsum[p];
    }
    all[tile] = prefix + v;
    asm volatile("st.release.gpu.global.s32 [%0], 2;" :: "l"(flag + tile) : "memory");
    before = prefix;
  }
  __syncthreads();
  y[tile * 32 + t] = v + before;
}
