// check --entry k --grid 4 --cluster 4 --block 32 --arg x:int32[128]=iota --arg y:int32[128]:out
#include <cstdint>
#include <cassert>
// each block sends a value a lane to the next block, by st.async
extern "C" __global__ void k(const int* x, int* y) {
  __shared__ alignas(16) int inbox[32];
  __shared__ uint64_t bar;
  uint32_t rank, n; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank)); asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
  const uint32_t b = (uint32_t)__cvta_generic_to_shared(&bar), in = (uint32_t)__cvta_generic_to_shared(inbox + threadIdx.x);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(b));
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], 128;" :: "r"(b) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  uint32_t there, bar_there; const uint32_t to = (rank + 1) % n;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(in), "r"(to));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(bar_there) : "r"(b), "r"(to));
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" :: "r"(there), "r"(x[blockIdx.x * 32 + threadIdx.x]), "r"(bar_there) : "memory");
  uint32_t done = 0;
  while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(b), "r"(0) : "memory");
  y[blockIdx.x * 32 + threadIdx.x] = inbox[threadIdx.x];
}
