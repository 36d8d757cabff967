// check --entry k --block 64 --arg a:fp16[129] --arg y:fp16[129]:out
// finds misaligned
#include <cuda_fp16.h>
extern "C" __global__ void k(const __half* a, __half* y) { const int t = threadIdx.x; y[0] = a[0];
  *reinterpret_cast<__half2*>(y + 1 + 2 * t) = *reinterpret_cast<const __half2*>(a + 1 + 2 * t); }  // <<
