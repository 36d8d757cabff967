// check --entry k --block 128 --arg a:bf16[4096] --arg b:bf16[4096] --arg c:float32[4096]:out
#include "gf/tensor_copy.cuh"
#include "gf/wgmma.cuh"
GF_WGMMA_SHAPE(__nv_bfloat16, 64);
extern "C" __global__ void __launch_bounds__(128) k(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
  __shared__ alignas(1024) char ta[64 * 128];
  __shared__ alignas(1024) char tb[64 * 128];
  const int t = threadIdx.x;
  for (int i = t; i < 64 * 64; i += 128) {
    const int byte = i / 64 * 128 + i % 64 * 2, place = byte ^ (byte >> 7 & 7) << 4;
    *reinterpret_cast<__nv_bfloat16*>(ta + place) = a[i];
    *reinterpret_cast<__nv_bfloat16*>(tb + place) = b[i];
  }
  gf::proxy_fence_shared();
  __syncthreads();
  float acc[32];
  gf::wgmma_fence();
  for (int s = 0; s < 4; s++)
    gf::wgmma<__nv_bfloat16, 64, false, true>(acc, gf::matrix_descriptor<128>(ta, 0, 1024) + 2 * s, gf::matrix_descriptor<128>(tb + s * 2048, 8192, 1024), s > 0);
  gf::wgmma_commit();
  gf::wgmma_wait<0>();
  const int row = t / 32 * 16 + t % 32 / 4;
  for (int i = 0; i < 32; i++) c[(row + 8 * (i / 2 % 2)) * 64 + i / 4 * 8 + t % 4 * 2 + i % 2] = acc[i];
}
