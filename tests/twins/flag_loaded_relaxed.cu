// check --entry k --block 32 --grid 2 --arg y:int32[64]:out --arg f:uint32[4]=zeros:inout
// finds race
#include <cuda/atomic>
extern "C" __global__ void k(int* y, unsigned* f) {
  cuda::atomic_ref<unsigned, cuda::thread_scope_device> flag(*f);
  if (threadIdx.x) return;
  if (blockIdx.x == 0) { y[0] = 5; flag.store(1, cuda::memory_order_release); }  // <<
  else { while (flag.load(cuda::memory_order_relaxed) == 0) {} y[1] = y[0]; }  // <<
}
