// check --launch multicast_box.toml
#include <cstdint>
#include <cuda.h>
#include <cassert>
__device__ uint32_t at(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
struct Barrier {
  uint64_t word;
  __device__ void init(uint32_t n) { asm volatile("{\n\t mbarrier.init.shared::cta.b64 [%1], %0; \n}" :: "r"(n), "r"(at(&word))); }
  __device__ void wait(uint32_t parity) const {
    asm volatile("{\n\t.reg .pred P1; \n\tLAB_WAIT: \n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1, %2; \n\t@P1 bra DONE; \n\tbra LAB_WAIT; \n\tDONE: \n\t}"
      :: "r"(at(&word)), "r"(parity), "r"(0x989680));
  }
  __device__ uint32_t is_over(uint32_t parity) const {
    uint32_t over;
    asm volatile("{\n\t.reg .pred P1; \n\tmbarrier.test_wait.parity.shared::cta.b64 P1, [%1], %2; \n\tselp.b32 %0, 1, 0, P1; \n\t}"
      : "=r"(over) : "r"(at(&word)), "r"(parity));
    return over;
  }
  __device__ void arrive_at(uint32_t rank, uint32_t pred = 1) const {
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b32 there;\n\tsetp.eq.u32 p, %2, 1;\n\t@p mapa.shared::cluster.u32 there, %0, %1;\n\t"
      "@p mbarrier.arrive.shared::cluster.b64  _, [there];\n\t}" :: "r"(at(&word)), "r"(rank), "r"(pred));
  }
  __device__ void arrive() const { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at(&word))); }
  __device__ void expect(uint32_t bytes) const { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%1], %0;" :: "r"(bytes), "r"(at(&word))); }
};
__device__ void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::); }
__device__ uint32_t own_rank() { uint32_t r; asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(r)); return r; }
__device__ void meet() { asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;\n" ::: "memory"); }
// a 3-D box, each block its slice, multicast to the four blocks of a cluster; hints by createpolicy
extern "C" __global__ void __cluster_dims__(4, 1, 1) k(const __grid_constant__ CUtensorMap m, const float* x, float* y) {
  __shared__ alignas(128) float box[4][2][4][8];
  __shared__ Barrier full;
  const uint32_t rank = own_rank();
  if (threadIdx.x == 0) { asm volatile("prefetch.tensormap [%0];" :: "l"(&m) : "memory"); full.init(1); publish_barriers(); full.expect(sizeof box); }
  meet();
  if (threadIdx.x == 0) {
    uint64_t policy; asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" :: "l"(&m), "r"(4), "r"(1), "r"(int(rank) * 2) : "memory");
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], [%1, {%4, %5, %6}], [%2], %3, %7;"
      :: "r"(at(&box[rank])), "l"(&m), "r"(at(&full)), "h"(uint16_t(0xf)), "r"(4), "r"(1), "r"(int(rank) * 2), "l"(policy) : "memory");
  }
  full.wait(0);
  for (int i = threadIdx.x; i < 256; i += 32) {
    const int c = i % 8, b = i / 8 % 4, a = i / 32;
    const float want = 4 + c < 10 ? x[(a * 5 + 1 + b) * 12 + 4 + c] : 0;
    if (4 + c < 10) assert(box[a / 2][a % 2][b][c] == want);
    y[rank * 256 + i] = box[a / 2][a % 2][b][c];
  }
  meet();
}
