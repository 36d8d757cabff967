// check --launch tensor.toml
#include <cuda/barrier>
#include <cuda.h>
using barrier = cuda::barrier<cuda::thread_scope_block>;
namespace cde = cuda::device::experimental;
extern "C" __global__ void k(const __grid_constant__ CUtensorMap tensor_map, int* out, int x, int y) {
  __shared__ alignas(128) int buf[8][32]; __shared__ barrier bar;
  if (threadIdx.x == 0) { init(&bar, blockDim.x); cde::fence_proxy_async_shared_cta(); }
  __syncthreads();
  barrier::arrival_token token;
  if (threadIdx.x == 0) { cde::cp_async_bulk_tensor_2d_global_to_shared(&buf, &tensor_map, x, y, bar); token = cuda::device::barrier_arrive_tx(bar, 1, sizeof(buf)); }
  else token = bar.arrive();
  bar.wait(std::move(token));
  for (int i = 0; i < 512; i += 128) out[i + threadIdx.x] = buf[i / 128][threadIdx.x % 32];
  __syncthreads();
  if (threadIdx.x < 32) buf[0][threadIdx.x] = threadIdx.x;
  cde::fence_proxy_async_shared_cta(); __syncthreads();
  if (threadIdx.x == 0) { cde::cp_async_bulk_tensor_2d_shared_to_global(&tensor_map, x, y, &buf); cde::cp_async_bulk_commit_group(); cde::cp_async_bulk_wait_group_read<0>(); }
}
