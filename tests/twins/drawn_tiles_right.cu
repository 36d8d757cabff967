// check --entry k --grid 3 --block 96 --arg x:float32[1024]=iota --arg y:float32[1024]:out --arg counter:int32[1]=zeros:inout
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
__device__ void copy(const void* g, uint64_t* bar, void* s, int32_t bytes) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" :: "r"(at(s)), "l"(g), "r"(bytes), "r"(at(bar)) : "memory");
}
// One thread draws tiles, and broadcasts them by shared memory and mbarriers
struct Shared { alignas(128) float data[2][64]; Barrier full[2], empty[2], tile_full, tile_empty; int tile; };
extern "C" __global__ void k(const float* x, float* y, int* counter) {
  __shared__ Shared s;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) { s.full[i].init(1); s.empty[i].init(64); }
    s.tile_full.init(1); s.tile_empty.init(64);
    publish_barriers();
  }
  __syncthreads();
  if (warp == 2) {
    if (lane == 0) {
      Turn<2> write{0, 1};
      uint32_t phase = 0;
      for (;;) {
        const int tile = atomicAdd(counter, 1);
        s.tile_empty.wait(phase ^ 1);
        s.tile = tile;
        s.tile_full.arrive();
        phase ^= 1;
        if (tile >= 16) break;
        s.empty[write.slot].wait(write.parity);
        s.full[write.slot].expect(256);
        copy(x + tile * 64, &s.full[write.slot].word, s.data[write.slot], 256);
        ++write;
      }
    }
  } else {
    Turn<2> read;
    uint32_t phase = 0;
    for (;;) {
      s.tile_full.wait(phase);
      phase ^= 1;
      const int tile = s.tile;
      s.tile_empty.arrive();
      if (tile >= 16) break;
      s.full[read.slot].wait(read.parity);
      y[tile * 64 + threadIdx.x] = s.data[read.slot][threadIdx.x];
      assert(s.data[read.slot][threadIdx.x] == tile * 64 + threadIdx.x);
      s.empty[read.slot].arrive();
      ++read;
    }
  }
}
