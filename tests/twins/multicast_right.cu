// check --launch multicast.toml
#include "gf/cluster.cuh"
#include "gf/tensor_copy.cuh"
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(const __grid_constant__ gf::TensorMap m, float* y, int tiles) {
  __shared__ alignas(128) float box[32];
  __shared__ unsigned long long full;
  const int t = threadIdx.x, rank = gf::cluster_rank();
  if (t == 0) { gf::mbarrier_init(&full, 1); gf::mbarrier_init_fence(); }
  gf::cluster_sync();
  if (t == 0) {
    gf::mbarrier_expect_bytes(&full, 128);
    if (rank == 0) gf::tensor_load_multicast(box, &m, &full, 3, 0);
  }
  gf::mbarrier_wait(&full, 0);
  y[rank * 32 + t] = box[t];
}
