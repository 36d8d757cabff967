// check --entry k --block 128 --arg a:bf16[1024]=ones --arg y:float32[512]:out
#include <cuda_bf16.h>
#include <cstdint>
extern "C" __global__ void __launch_bounds__(128) k(const uint4* a, float* y) {
  __shared__ alignas(128) uint4 sa[128], sb[16];
  const int t = threadIdx.x;
  sa[t] = a[t]; if (t < 16) sb[t] = a[t];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const uint64_t da = (__cvta_generic_to_shared(sa) >> 4) | 8ull << 16 | 16ull << 32, db = (__cvta_generic_to_shared(sb) >> 4) | 8ull << 16 | 16ull << 32;
  float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;" : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "l"(da), "l"(db));
  asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
  y[t] = c0; y[128 + t] = c1; y[256 + t] = c2; y[384 + t] = c3;
}
