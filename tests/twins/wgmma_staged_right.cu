// check --launch wgmma_staged.toml
#include "gf/named_barrier.cuh"
#include "gf/shared.cuh"
#include "gf/tensor_copy.cuh"
#include "gf/wgmma.cuh"
GF_WGMMA_SHAPE(__half, 32);
extern "C" __global__ void __launch_bounds__(256) k(const __grid_constant__ gf::TensorMap a_map, const __grid_constant__ gf::TensorMap b_map, float* c, int depth) {
  GF_DYNAMIC_SHARED(char, memory);
  __shared__ unsigned long long full;
  char* tiles = memory + (1024 - gf::shared_address(memory) % 1024) % 1024;
  char* tile_b = tiles + 2 * 8192;
  const int t = threadIdx.x, group = t / 128, lane = t % 128;
  if (t == 0) {
    gf::mbarrier_init(&full, 1); gf::mbarrier_init_fence();
    gf::mbarrier_expect_bytes(&full, (128 + 32) * 128);
    gf::tensor_load(tiles, &a_map, &full, 0, 0);
    gf::tensor_load(tiles + 8192, &a_map, &full, 0, 64);
    gf::tensor_load(tile_b, &b_map, &full, 0, 0);
  }
  __syncthreads();
  gf::mbarrier_wait(&full, 0);
  const unsigned long long left = gf::matrix_descriptor<128>(tiles + group * 8192, 0, 1024);
  const unsigned long long right = gf::matrix_descriptor<128>(tile_b, 0, 1024);
  float acc[16];
  gf::wgmma_fence();
  for (int s = 0; s < 4; s++)
    gf::wgmma<__half, 32>(acc, left + 2 * s, right + 2 * s, s > 0);
  gf::wgmma_commit();
  gf::wgmma_wait<0>();
  float* stage = reinterpret_cast<float*>(tiles + group * 8192);
  const int row = lane / 32 * 16 + lane % 32 / 4;
  for (int i = 0; i < 16; i++) stage[(row + 8 * (i / 2 % 2)) * 32 + i / 4 * 8 + lane % 4 * 2 + i % 2] = acc[i];
  gf::proxy_fence_shared();
  gf::named_barrier_sync(1 + group, 128);
  if (lane == 0) {
    gf::bulk_store(c + group * 64 * 32, stage, 64 * 32 * 4);
    gf::bulk_commit();
    gf::bulk_wait_read<0>();
  }
}
