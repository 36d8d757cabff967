// check --entry k --grid 3 --block 32 --arg x:float32[256] --arg y:float32[256] --arg counter:int32[1]=0
extern "C" __global__ void k(const float* x, float* y, int* counter) {
  __shared__ int tile;
  const int t = threadIdx.x;
  for (;;) {
    if (t == 0) tile = atomicAdd(counter, 1);
    __syncthreads();
    const int mine = tile;
    __syncthreads();
    if (mine >= 8) break;
    y[32 * mine + t] = 2 * x[32 * mine + t];
  }
}
