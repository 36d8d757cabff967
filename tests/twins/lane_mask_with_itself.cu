// check --entry k --block 32 --arg x:float32[32] --arg y:float32[32]:out --arg n:int32[1]=zeros:inout
// finds out_of_bounds
#include <cuda/ptx>
namespace ptx = cuda::ptx;
extern "C" __global__ void k(const float* x, float* y, int* n) { const int t = threadIdx.x; __shared__ float s[32];
  unsigned m = __ballot_sync(~0u, true); s[__popc(m & ptx::get_sreg_lanemask_le())] = x[t]; __syncwarp(); y[t] = s[t]; }  // <<
