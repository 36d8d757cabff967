// check --entry k --block 256 --arg x:float32[256] --arg y:float32[256]:out
#include "gf/register_budget.cuh"
extern "C" __global__ void __launch_bounds__(256) k(const float* x, float* y) {
  const int t = threadIdx.x;
  if (t < 128) { gf::register_shrink<24>(); }
  else { gf::register_grow<240>(); }
  y[t] = x[t];
}
