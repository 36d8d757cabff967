// check --entry k --block 64 --arg a:fp16[128] --arg y:fp16[2]=zeros:inout --arg z:bf16[2]=zeros:inout
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void k(const __half2* a, __half2* y, __nv_bfloat162* z) { atomicAdd(y, a[threadIdx.x]); atomicAdd(z, __float2bfloat162_rn(1.0f)); }
