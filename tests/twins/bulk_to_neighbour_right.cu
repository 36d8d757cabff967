// check --entry k --grid 2 --cluster 2 --block 64 --arg x:float32[128]=iota --arg y:float32[128]:out
#include <cstdint>
#include <cassert>
__device__ uint32_t sm(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ uint32_t peer(const void* p, uint32_t r) { uint32_t a; asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"(sm(p)), "r"(r)); return a; }
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ alignas(16) float out[64], in[64];
  __shared__ uint64_t bar;
  const int t = threadIdx.x, rank = blockIdx.x & 1;
  if (t == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" :: "r"(sm(&bar)) : "memory");
    asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], 256; }" :: "r"(sm(&bar)) : "memory");
  }
  out[t] = x[rank * 64 + t] + 1;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (t == 0)
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :: "r"(peer(in, rank ^ 1)), "r"(sm(out)), "r"(256), "r"(peer(&bar, rank ^ 1)) : "memory");
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra again; }" :: "r"(sm(&bar)) : "memory");
  assert(in[t] == (rank ^ 1) * 64 + t + 1);
  y[rank * 64 + t] = in[t];
  asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
}
