// check --launch wgmma_e4m3.toml
#include "gf/shared.cuh"
#include "gf/tensor_copy.cuh"
#include "gf/wgmma.cuh"
GF_WGMMA_SHAPE(__nv_fp8_e4m3, 32);
extern "C" __global__ void __launch_bounds__(128) k(const __grid_constant__ gf::TensorMap a_map, const __grid_constant__ gf::TensorMap b_map, float* c, int depth) {
  GF_DYNAMIC_SHARED(char, memory);
  __shared__ unsigned long long full[2];
  char* tiles = memory + (1024 - gf::shared_address(memory) % 1024) % 1024;
  const int t = threadIdx.x, steps = depth / 128;
  if (t == 0) { gf::mbarrier_init(full, 1); gf::mbarrier_init(full + 1, 1); gf::mbarrier_init_fence(); }
  __syncthreads();
  auto load = [&](int i) {
    gf::mbarrier_expect_bytes(full + i % 2, (64 + 32) * 128);
    gf::tensor_load(tiles + i % 2 * 12288, &a_map, full + i % 2, i * 128, 0);
    gf::tensor_load(tiles + i % 2 * 12288 + 8192, &b_map, full + i % 2, i * 128, 0);
  };
  if (t == 0) { load(0); load(1); }
  float acc[16];
  for (int i = 0; i < 16; i++) acc[i] = 0;
  for (int i = 0; i < steps; i++) {
    gf::mbarrier_wait(full + i % 2, i / 2 & 1);
    char* tile = tiles + i % 2 * 12288;
    const unsigned long long da = gf::matrix_descriptor<128>(tile, 0, 1024), db = gf::matrix_descriptor<128>(tile + 8192, 0, 1024);
    gf::wgmma_fence();
    for (int s = 0; s < 4; s++) gf::wgmma<__nv_fp8_e4m3, 32>(acc, da + 2 * s, db + 2 * s, true);
    gf::wgmma_commit();
    gf::wgmma_wait<0>();
    if (i + 2 < steps) { __syncthreads(); if (t == 0) load(i + 2); }
  }
  const int row = t / 32 * 16 + t % 32 / 4;
  for (int i = 0; i < 16; i++) c[(row + 8 * (i / 2 % 2)) * 32 + i / 4 * 8 + t % 4 * 2 + i % 2] = acc[i];
}
