// check --launch swizzled_within_pattern.toml
// Boxes of 4 rows, each within the swizzle's pattern of 8 rows: the pattern follows the bits of the address.
#include <cassert>
#include <cuda.h>
#include <cstdint>
__device__ unsigned place(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }
__device__ void wait(uint64_t& bar, int parity) {
  asm volatile("{\n.reg .pred done;\nwait_loop_%=:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra wait_loop_%=;\n}" ::"r"(place(&bar)), "r"(parity) : "memory");
}
extern "C" __global__ void k(const __grid_constant__ CUtensorMap map, const float* x, float* y) {
  __shared__ alignas(1024) float tile[32][32];
  __shared__ uint64_t bars[2];
  const int t = threadIdx.x;
  if (t == 0) {
    for (uint64_t& bar : bars) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place(&bar)));
    asm volatile("fence.mbarrier_init.release.cluster;");
    for (int half = 0; half < 2; half++) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place(bars + half)), "r"(4 * 4 * 128) : "memory");
      for (int r = 16 * half; r < 16 * half + 16; r += 4)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                     ::"r"(place(tile[r])), "l"(&map), "r"(0), "r"(r), "r"(place(bars + half)) : "memory");
    }
  }
  __syncwarp();
  wait(bars[0], 0);
  wait(bars[1], 0);
  for (int r = 0; r < 32; r++) y[r * 32 + t] = tile[r][(t / 4 ^ r % 8) * 4 + t % 4];
  for (int r = 0; r < 32; r++) assert(y[r * 32 + t] == x[r * 32 + t]);
}
