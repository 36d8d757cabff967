// check --entry k --grid 2 --block 32 --arg x:float32[64] --arg y:float32[64]:out
#include <cuda/atomic>
#include "gf/cluster.cuh"
using Flag = cuda::atomic_ref<int, cuda::thread_scope_device>;
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(const float* x, float* y) {
  __shared__ float box[32];
  __shared__ int flag;
  const int t = threadIdx.x, rank = gf::cluster_rank();
  if (t == 0) flag = 0;
  gf::cluster_sync();
  if (rank == 0) {
    gf::map_shared_rank(box, 1)[t] = x[t];
    __syncwarp();
    if (t == 0) Flag(*gf::map_shared_rank(&flag, 1)).store(1, cuda::memory_order_release);
    y[t] = 0;
  } else {
    if (t == 0) while (Flag(flag).load(cuda::memory_order_acquire) == 0) {}
    __syncwarp();
    y[32 + t] = box[t];
  }
}
