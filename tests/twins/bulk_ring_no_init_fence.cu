// check --entry k --block 64 --arg x:float32[1024] --arg y:float32[512]:out
// finds race
#include <cuda/ptx>
#include <cuda/barrier>
namespace ptx = cuda::ptx;
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ alignas(128) float ring[3][64];
  __shared__ cuda::std::uint64_t full[3], empty[3];
  const int t = threadIdx.x;
  if (t == 0) { for (int i = 0; i < 3; i++) { ptx::mbarrier_init(&full[i], 1); ptx::mbarrier_init(&empty[i], 32); }  // <<
     }
  __syncthreads();
  if (t < 32) {
    for (int i = 0; i < 8; i++) { const int s = i % 3, p = i / 3 & 1;
      if (t == 0) {
        while (!ptx::mbarrier_try_wait_parity(&empty[s], p ^ 1)) {}
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[s], 256u);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, ring[s], x + i * 64, 256u, &full[s]);  // <<
      }
    }
  } else {
    for (int i = 0; i < 8; i++) { const int s = i % 3, p = i / 3 & 1;
      while (!ptx::mbarrier_try_wait_parity(&full[s], p)) {}
      y[i * 64 + t - 32] = ring[s][t - 32]; y[i * 64 + t] = ring[s][t];
      ptx::mbarrier_arrive(&empty[s]);
    }
  }
}
