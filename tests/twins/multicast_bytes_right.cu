// check --entry k --grid 2 --cluster 2 --block 64 --arg x:float32[1024]=iota --arg y:float32[1024]:out
#include <cstdint>
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
template <int stages> struct Turn {
  int slot = 0; uint32_t parity = 0;
  __device__ void operator++() { if (++slot == stages) { slot = 0; parity ^= 1; } }
};
__device__ void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::); }
__device__ uint32_t own_rank() { uint32_t r; asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(r)); return r; }
__device__ uint32_t elected() {
  uint32_t pred = 0, lane = 0;
  asm volatile("{\n.reg .b32 %%rx;\n.reg .pred %%px;\nelect.sync %%rx|%%px, %2;\n@%%px mov.s32 %1, 1;\nmov.s32 %0, %%rx;\n}\n" : "+r"(lane), "+r"(pred) : "r"(0xFFFFFFFF));
  return pred;
}
// each block fetches half of a tile and multicasts it to both
struct Shared { alignas(128) float data[2][64]; Barrier full[2], empty[2]; };
__device__ void multicast(const float* g, uint64_t* bar, float* s, int bytes, uint16_t mask) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
    :: "r"(at(s)), "l"(g), "r"(bytes), "r"(at(bar)), "h"(mask) : "memory");
}
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ Shared s;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = own_rank();
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) { s.full[i].init(1); s.empty[i].init(2); }
    publish_barriers();
  }
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");
  if (warp == 0) {
    Turn<2> write{0, 1};
    if (elected()) {
      for (int i = 0; i < 8; i++) {
        s.empty[write.slot].wait(write.parity);
        s.full[write.slot].expect(256);
        multicast(x + 64 * i + 32 * rank, &s.full[write.slot].word, s.data[write.slot] + 32 * rank, 128, 3);
        ++write;
      }
      for (int i = 0; i < 2; i++) { s.empty[write.slot].wait(write.parity); ++write; }
    }
  } else {
    Turn<2> read;
    for (int i = 0; i < 8; i++) {
      s.full[read.slot].wait(read.parity);
      assert(s.data[read.slot][lane] == 64 * i + lane);
      y[512 * rank + 64 * i + lane] = s.data[read.slot][lane];
      y[512 * rank + 64 * i + 32 + lane] = s.data[read.slot][lane + 32];
      __syncwarp();
      s.empty[read.slot].arrive_at(lane, lane < 2);
      ++read;
    }
  }
}
