// check --entry 'k<float, 4>' --block 64 --grid 2 --arg a:float32[512] --arg y:float32[512]:out --arg n=512
// finds race
template <class F> __device__ __forceinline__ void each(int n, F f) { for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) f(i); }
template <class T, int N> __global__ __launch_bounds__(64, 2) void k(const T* a, T* y, int n) {
  __shared__ T s[N]; if (threadIdx.x < N) s[threadIdx.x] = T(threadIdx.x);  // <<
  auto op = [&](int i) { y[i] = a[i] + s[i % N]; };  // <<
  each(n, op);
}
