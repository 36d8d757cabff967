// check --entry k --grid 4 --block 64 --arg x:float32[256]=ones --arg y:float32[64]=zeros:inout
#include <cstdint>
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ alignas(16) float part[64];
  const int t = threadIdx.x;
  part[t] = x[blockIdx.x * 64 + t] * 2;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" :: "l"(y), "r"((uint32_t)__cvta_generic_to_shared(part)), "r"(256) : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}
