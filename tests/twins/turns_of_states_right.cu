// check --entry k --block 96 --arg x:float32[704]=iota --arg y:float32[704]:out
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
__device__ void copy(const void* g, uint64_t* bar, void* s, int32_t bytes) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" :: "r"(at(s)), "l"(g), "r"(bytes), "r"(at(bar)) : "memory");
}
struct Shared { alignas(128) float data[3][64]; Barrier full[3], empty[3]; };
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ Shared s;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == 0 && elected()) {
    for (int i = 0; i < 3; i++) { s.full[i].init(1); s.empty[i].init(2); }
    publish_barriers();
  }
  __syncthreads();
  if (warp == 0) {
    Turn<3> write{0, 1};
    if (elected()) {
      for (int i = 0; i < 11; i++) {
        s.empty[write.slot].wait(write.parity);
        s.full[write.slot].expect(256);
        copy(x + 64 * i, &s.full[write.slot].word, s.data[write.slot], 256);
        ++write;
      }
      for (int i = 0; i < 3; i++) { s.empty[write.slot].wait(write.parity); ++write; }
    }
  } else {
    Turn<3> read, release;
    const int column = (warp - 1) * 32 + lane;
    for (int i = 0; i < 11; i++) {
      uint32_t token = s.full[read.slot].is_over(read.parity);
      if (!token) s.full[read.slot].wait(read.parity);
      const float got = s.data[read.slot][column];
      assert(got == 64 * i + column);
      y[64 * i + column] = got;
      ++read;
      __syncwarp();
      if (lane == 0) s.empty[release.slot].arrive_at(own_rank());
      ++release;
    }
  }
}
