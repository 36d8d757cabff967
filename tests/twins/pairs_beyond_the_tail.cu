// check --entry k --block 64 --arg a:bf16[127] --arg y:bf16[127]:out
// finds out_of_bounds
#include <cuda_bf16.h>
extern "C" __global__ void k(const __nv_bfloat16* a, __nv_bfloat16* y) { const int t = threadIdx.x;
  reinterpret_cast<__nv_bfloat162*>(y)[t] = __hadd2(reinterpret_cast<const __nv_bfloat162*>(a)[t], __float2bfloat162_rn(1.0f)); }  // <<
