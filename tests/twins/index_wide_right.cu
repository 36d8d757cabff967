// check --entry k --block 32 --arg a:float32[1024] --arg y:float32[32]:out --arg stride=70000
extern "C" __global__ void k(const float* a, float* y, int stride) { const int row = threadIdx.x * 1500;
  const long long at = (long long)row * stride; y[threadIdx.x] = at < 1024 ? a[at] : 0; }
