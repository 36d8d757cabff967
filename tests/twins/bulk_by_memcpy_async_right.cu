// check --entry k --block 128 --arg x:float32[2048]=iota --arg y:float32[2048]:out
#include <cuda/barrier>
#include <cuda/std/utility>
#include <cooperative_groups.h>
#include <cassert>
namespace cg = cooperative_groups;
using barrier_t = cuda::barrier<cuda::thread_scope_block>;
__device__ void produce(barrier_t* ready, barrier_t* filled, float* buffer, const float* in, int n, int len) {
  for (int i = 0; i < n / len; ++i) {
    ready[i % 2].arrive_and_wait();
    if (threadIdx.x == 0) {
      cuda::device::memcpy_async_tx(buffer + i % 2 * len, in + i * len, cuda::aligned_size_t<16>(len * sizeof(float)), filled[i % 2]);
      cuda::device::barrier_expect_tx(filled[i % 2], len * sizeof(float));
    }
    barrier_t::arrival_token token = filled[i % 2].arrive();
  }
}
__device__ void consume(barrier_t* ready, barrier_t* filled, float* buffer, float* out, int n, int len) {
  barrier_t::arrival_token token1 = ready[0].arrive();
  barrier_t::arrival_token token2 = ready[1].arrive();
  const int t = threadIdx.x - 32;
  for (int i = 0; i < n / len; ++i) {
    filled[i % 2].arrive_and_wait();
    for (int j = t; j < len; j += 96) { assert(buffer[i % 2 * len + j] == i * len + j); out[i * len + j] = buffer[i % 2 * len + j]; }
    barrier_t::arrival_token token = ready[i % 2].arrive();
  }
}
extern "C" __global__ void k(const float* x, float* y) {
  extern __shared__ float unused[];
  __shared__ alignas(16) float buffer[2 * 256];
  #pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ barrier_t bar[4];
  auto block = cg::this_thread_block();
  if (block.thread_rank() < 4) init(bar + block.thread_rank(), block.size());
  if (block.thread_rank() < 4) cuda::device::experimental::fence_proxy_async_shared_cta();
  block.sync();
  if (block.thread_rank() < 32) produce(bar, bar + 2, buffer, x, 2048, 256);
  else consume(bar, bar + 2, buffer, y, 2048, 256);
}
