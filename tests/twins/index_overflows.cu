// check --entry k --block 32 --arg a:float32[1024] --arg y:float32[32]:out --arg stride=70000
// finds out_of_bounds
extern "C" __global__ void k(const float* a, float* y, int stride) { const int row = threadIdx.x * 1500;
  const int at = row * stride; y[threadIdx.x] = at < 1024 ? a[at] : 0; }  // <<
