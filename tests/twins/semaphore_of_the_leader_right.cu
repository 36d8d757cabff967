// check --entry k --block 64 --grid 2,4 --arg a:float32[512] --arg y:float32[128]=zeros:inout --arg sem:int32[2]=zeros:inout
extern "C" __global__ void k(const float* a, float* y, int* sem) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  const float v = a[blockIdx.y * 128 + i];
  int state = -1;
  if (threadIdx.x == 0) do { asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(state) : "l"(sem + blockIdx.x)); } while (state != (int)blockIdx.y);
  __syncthreads();
  y[i] += v;
  __syncthreads();
  if (threadIdx.x == 0) asm volatile("st.global.release.gpu.b32 [%0], %1;" :: "l"(sem + blockIdx.x), "r"((int)((blockIdx.y + 1) % gridDim.y)) : "memory");
}
