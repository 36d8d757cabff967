// check --entry k --grid 2 --cluster 2 --block 32 --arg y:int32[2]:out
#include <cstdint>
#include <cassert>
extern "C" __global__ void k(int* y) {
  __shared__ unsigned sum;
  __shared__ uint64_t bar;
  uint32_t rank; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  const uint32_t b = (uint32_t)__cvta_generic_to_shared(&bar), s = (uint32_t)__cvta_generic_to_shared(&sum);
  if (threadIdx.x == 0) {
    sum = 0;
    asm volatile("mbarrier.init.shared.b64 [%0], 1;\n fence.mbarrier_init.release.cluster;" :: "r"(b) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(b), "n"(32 * 4) : "memory");
  }
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  uint32_t there, bar_there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(s), "r"(rank ^ 1));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(bar_there) : "r"(b), "r"(rank ^ 1));
  asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];" :: "r"(there), "r"(threadIdx.x), "r"(bar_there) : "memory");
  uint32_t done = 0;
  while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(b), "r"(0) : "memory");
  if (threadIdx.x == 0) { assert(sum == 496); y[rank] = sum; }
}
