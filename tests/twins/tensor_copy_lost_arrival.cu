// check --launch tensor.toml
// finds deadlock
#include <cuda/barrier>
#include <cuda/ptx>
#include <cuda.h>
using barrier = cuda::barrier<cuda::thread_scope_block>;
namespace ptx = cuda::ptx;
extern "C" __global__ void k(const __grid_constant__ CUtensorMap tensor_map, int* out, int x, int y) {
  __shared__ alignas(128) int smem_buffer[8][32];
  #pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ barrier bar;
  if (threadIdx.x == 0) { init(&bar, blockDim.x); cuda::ptx::fence_proxy_async(ptx::space_shared); }
  __syncthreads();
  barrier::arrival_token token;
  int32_t tensor_coords[2] = { x, y };
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, &smem_buffer, &tensor_map, tensor_coords, cuda::device::barrier_native_handle(bar));
    token = cuda::device::barrier_arrive_tx(bar, 1, sizeof(smem_buffer));
  } else { if (threadIdx.x != 7) token = bar.arrive(); else return; }
  bar.wait(std::move(token));  // <<
  out[threadIdx.x] = smem_buffer[threadIdx.x / 32][threadIdx.x % 32];
  out[128 + threadIdx.x] = smem_buffer[4 + threadIdx.x / 32][threadIdx.x % 32];
  for (int i = 256; i < 512; i += 128) out[i + threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x < 32) smem_buffer[0][threadIdx.x] = threadIdx.x;
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &tensor_map, tensor_coords, &smem_buffer);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
  }
  if (threadIdx.x == 0) { (&bar)->~barrier(); }
}
