// check --entry k --block 32 --arg x:float32[1024] --arg y:uint32[192]:out
#include <cuda/ptx>
namespace ptx = cuda::ptx;
extern "C" __global__ void k(const float* x, unsigned* y) { const int t = threadIdx.x;
  y[t] = ptx::get_sreg_lanemask_lt(); y[32 + t] = ptx::get_sreg_lanemask_ge(); y[64 + t] = ptx::get_sreg_laneid();
  unsigned m = __ballot_sync(~0u, x[t] > 0); y[96 + t] = __popc(m & ptx::get_sreg_lanemask_lt()); y[128 + t] = ptx::get_sreg_lanemask_eq() | ptx::get_sreg_lanemask_le() ; y[160 + t] = ptx::get_sreg_lanemask_gt(); }
