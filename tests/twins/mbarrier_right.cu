// check --entry k --block 64 --arg x:int32[256] --arg y:int32[64]:out
#include <cuda/ptx>
namespace ptx = cuda::ptx;
extern "C" __global__ void k(const int* x, int* y) {
  __shared__ int tile[64]; __shared__ uint64_t bar; const unsigned t = threadIdx.x;
  if (t == 0) ptx::mbarrier_init(&bar, 64);
  __syncthreads();
  tile[t] = x[t];
  uint64_t token = ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar);
  while (!ptx::mbarrier_test_wait(ptx::sem_acquire, ptx::scope_cta, &bar, token)) {}
  y[t] = tile[63 - t];
  int z; ptx::fence(ptx::sem_acq_rel, ptx::scope_gpu); (void)z;

}
