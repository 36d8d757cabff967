// check --launch stmatrix_swizzled.toml
#include <cuda.h>
#include <cuda_bf16.h>
#include <cstdint>
// registers -> stmatrix with a hand-made 128-byte swizzle -> TMA store
__device__ uint32_t sm(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
extern "C" __global__ void __launch_bounds__(128) k(const __grid_constant__ CUtensorMap out, const __nv_bfloat16* x) {
  __shared__ alignas(1024) unsigned char tile[64 * 128];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  for (int c = 0; c < 4; c++) {             // 16 columns each
    uint32_t r[4];
    for (int i = 0; i < 4; i++) {
      const int row = warp * 16 + lane / 4 + 8 * (i % 2), col = c * 16 + 8 * (i / 2) + lane % 4 * 2;
      r[i] = *reinterpret_cast<const uint32_t*>(x + row * 64 + col);
    }
    const int row = warp * 16 + lane % 16, chunk = c * 2 + lane / 16;
    const uint32_t at = sm(tile) + row * 128 + (chunk ^ (row & 7)) * 16;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};\n" :: "r"(at), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("bar.sync 1, 128;" ::: "memory");
  uint32_t leader;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 %0, 1, 0, p; }" : "=r"(leader));
  if (warp == 0 && leader) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" :: "l"(&out), "r"(sm(tile)), "r"(0), "r"(0) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(0) : "memory");
  }
}
