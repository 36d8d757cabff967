// check --launch wgmma_by_numbers.toml
#include <cstdint>
#include <cuda.h>
#include <cassert>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
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
__device__ void warpgroup_arrive() { asm volatile ("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ void warpgroup_commit_batch() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
template <int N> __device__ void warpgroup_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory"); }
union GmmaDescriptor { uint64_t desc_; struct { uint16_t start_address_ : 14, : 2; uint16_t lead : 14, : 2; uint16_t stride : 14, : 2; uint8_t : 1, base_offset_ : 3, : 4; uint8_t : 6, layout_type_ : 2; } bits; };
__device__ uint64_t make(const void* p, int lead, int stride, int layout) { GmmaDescriptor d; d.desc_ = 0; d.bits.start_address_ = at(p) >> 4; d.bits.lead = lead >> 4; d.bits.stride = stride >> 4; d.bits.layout_type_ = layout; return d.desc_; }
__device__ void tma2d(const void* map, uint64_t* mbar, void* smem, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;"
    :: "r"(at(smem)), "l"(map), "r"(at(mbar)), "r"(x), "r"(y), "l"(0x1000000000000000ull) : "memory");
}
template <int tnspA, int tnspB, int scaleA = 1, int scaleB = 1>
struct MMA {
  __device__ static void fma(uint64_t const& desc_a, uint64_t const& desc_b, float& d00, float& d01, float& d02, float& d03, float& d04, float& d05, float& d06, float& d07, float& d08, float& d09, float& d10, float& d11, int const scale_D = 1) {
    asm volatile("{ \n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %14, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n24k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11},"
      " %12, %13, p, %15, %16, %17, %18;\n"
    "}\n"
      : "+f"(d00), "+f"(d01), "+f"(d02), "+f"(d03), "+f"(d04), "+f"(d05), "+f"(d06), "+f"(d07), "+f"(d08), "+f"(d09), "+f"(d10), "+f"(d11)
      : "l"(desc_a), "l"(desc_b), "r"(int32_t(scale_D)), "n"(int32_t(scaleA)), "n"(int32_t(scaleB)), "n"(int32_t(tnspA)), "n"(int32_t(tnspB)));
  }
};
extern "C" __global__ void __launch_bounds__(128) k(const __grid_constant__ CUtensorMap am, const __grid_constant__ CUtensorMap bm, const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ Barrier full;
  const int t = threadIdx.x;
  if (t == 0) { asm volatile("prefetch.tensormap [%0];" :: "l"(&am) : "memory"); full.init(1); publish_barriers(); }
  __syncthreads();
  unsigned char *sa = smem, *sb = smem + 16384;
  if (t == 0) { full.expect(11264); tma2d(&am, &full.word, sa, 0, 0); tma2d(&bm, &full.word, sb, 0, 0); }
  full.wait(0);
  float d[12];
  uint64_t da = make(sa, 1, 1024, 1), db = make(sb, 1, 1024, 1);
  warpgroup_arrive();
  for (int s = 0; s < 4; s++) {
    MMA<0, 0>::fma(da + 2 * s, db + 2 * s, d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7], d[8], d[9], d[10], d[11], s ? 1 : 0);
  }
  warpgroup_commit_batch();
  warpgroup_wait<0>();
  const int row = t / 32 * 16 + t % 32 / 4;
  for (int i = 0; i < 12; i++) {
    const int m = row + 8 * (i / 2 % 2), n = i / 4 * 8 + t % 4 * 2 + i % 2;
    float want = 0;
    for (int k = 0; k < 64; k++) want += float(a[m * 64 + k]) * float(b[n * 64 + k]);
    assert(fabsf(float(d[i]) - want) <= 1e-3f * (1 + fabsf(want)));
    c[m * 24 + n] = d[i];
  }
}
