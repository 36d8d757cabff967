// check --launch padded_box.toml
#include "gf/tensor_copy.cuh"
extern "C" __global__ void k(const __grid_constant__ gf::TensorMap m, const float* x) {
  __shared__ alignas(128) float tile[32][40];
  const int t = threadIdx.x;
  for (int r = 0; r < 20; r++) tile[r][t] = x[t * 20 + r];
  gf::proxy_fence_shared();
  __syncwarp();
  if (t == 0) { gf::tensor_store(&m, tile, 0, 0); gf::bulk_commit(); gf::bulk_wait_read<0>(); }
}
