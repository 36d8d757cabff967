// check --entry k --block 32 --arg sums:float32[128]=zeros:inout --arg halves:bf16[256]=zeros:inout
#include <cassert>
#include <cuda_bf16.h>
extern "C" __global__ void k(float* sums, __nv_bfloat16* halves) {
  const int t = threadIdx.x;
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" :: "l"(sums + 4 * (t % 16)), "f"(1.f), "f"(2.f), "f"(3.f), "f"(4.f) : "memory");
  asm volatile("red.relaxed.gpu.global.add.noftz.v4.bf16x2 [%0], {%1, %1, %1, %1};" :: "l"(halves + 8 * (t % 16)), "r"(0x3f803f80) : "memory");
  __syncwarp();
  assert(sums[4 * (t % 16) + t % 4] == 2 * (t % 4 + 1) && float(halves[t]) == 2);
}
