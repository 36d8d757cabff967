// check --entry k --grid 2 --block 32 --arg x:float32[64] --arg y:float32[64]:out
#include "gf/cluster.cuh"
#include "gf/tensor_copy.cuh"
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(const float* x, float* y) {
  __shared__ alignas(128) float box[32];
  const int t = threadIdx.x, rank = gf::cluster_rank();
  gf::cluster_sync();
  if (rank == 1) gf::map_shared_rank(box, 0)[t] = x[t];
  gf::proxy_fence();
  gf::cluster_sync();
  if (rank == 0 && t == 0) {
    gf::bulk_store(y, box, 128);
    gf::bulk_commit();
    gf::bulk_wait<0>();
  }
  if (rank == 1) y[32 + t] = 0;
}
