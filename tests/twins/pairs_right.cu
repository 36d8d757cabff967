// check --entry k --block 64 --arg a:fp16[128] --arg b:bf16[128] --arg y:fp16[128]:out --arg z:bf16[128]:out
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void k(const __half2* a, const __nv_bfloat162* b, __half2* y, __nv_bfloat162* z) { const int t = threadIdx.x;
  __half2 h = __hfma2(a[t], a[t], __float2half2_rn(1.0f)); h = __hmax2(h, __hneg2(h)); y[t] = __lows2half2(h, __h2div(h, __float2half2_rn(2.0f)));
  __nv_bfloat162 c = __hmul2(b[t], b[t]); c = __hadd2(c, __float2bfloat162_rn(0.5f)); z[t] = __halves2bfloat162(__high2bfloat16(c), __low2bfloat16(c)); }
