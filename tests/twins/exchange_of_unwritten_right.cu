// check --entry k --grid 2 --block 64 --arg y:float32[128]:out --arg w:uint32[4]:workspace
// An exchange is the first write of a word in either memory: what the word held matters only to a result that is used.
extern "C" __global__ void k(float* y, unsigned* w) {
  __shared__ unsigned s;
  if (threadIdx.x == 0) {
    atomicExch(&s, 7u);
    atomicExch(&w[blockIdx.x], 5u);
  }
  __syncthreads();
  if (threadIdx.x % 32 == 1) atomicAdd(&w[blockIdx.x], 1u);
  const unsigned before = threadIdx.x == 40 ? atomicExch(&s, 9u) : 7u;
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = float(s + before + w[blockIdx.x]);
}
