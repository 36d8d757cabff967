// check --entry k --block 64 --arg a:float64[64] --arg y:float64[64]:out
extern "C" __global__ void k(const double* a, double* y) { __shared__ double s[64]; s[threadIdx.x] = a[threadIdx.x]; __syncthreads();
  double v = s[63 - threadIdx.x]; y[threadIdx.x] = __dadd_rn(fma(v, v, 1.0), rsqrt(fabs(v) + 1.0)) + __longlong_as_double(__double_as_longlong(v)); }
