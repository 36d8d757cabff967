// check --entry k --block 384 --arg x:int32[4096]=iota --arg y:int32[4096]:out
#include <cstdint>
#include <cassert>
// two consumer warpgroups in turns by named barriers, a producer warp by bar.arrive/bar.sync with counts
enum Bar { Order0 = 2, Order1 = 3, Full = 4, Empty = 6 };
__device__ void sync(int id, int n) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(n) : "memory"); }
__device__ void arrive(int id, int n) { asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(n) : "memory"); }
extern "C" __global__ void __launch_bounds__(384) k(const int* x, int* y) {
  __shared__ int tile[2][128];
  __shared__ int order[32], next;
  const int group = threadIdx.x / 128, t = threadIdx.x % 128;
  if (threadIdx.x == 0) next = 0;
  __syncthreads();
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    for (int i = 0; i < 32; i++) {
      sync(Empty + i % 2, 256);
      tile[i % 2][t] = x[i * 128 + t];
      __threadfence_block();
      arrive(Full + i % 2, 256);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int mine = group - 1;
    if (mine == 1) arrive(Order0, 256);
    arrive(Empty + mine, 256);
    for (int i = mine; i < 32; i += 2) {
      sync(Full + mine, 256);
      const int got = tile[mine][t];
      if (i + 2 < 32) arrive(Empty + mine, 256);
      sync(Order0 + mine, 256);
      if (t == 0) { order[i] = next; next = next + 1; }
      __threadfence_block();
      if (!(mine == 1 && i == 31)) arrive(Order0 + (mine ^ 1), 256);
      y[i * 128 + t] = got;
      assert(got == i * 128 + t);
    }
  }
}
