// check --entry k --block 64 --arg x:int32[64]=iota --arg y:int32[64]:out
#include <cstdint>
#include <cassert>
// waits by state, with a hint of how long to sleep; arrivals by twos; noComplete
extern "C" __global__ void k(const int* x, int* y) {
  __shared__ int a[64];
  __shared__ uint64_t bar;
  const int t = threadIdx.x;
  const uint32_t b = (uint32_t)__cvta_generic_to_shared(&bar);
  if (t == 0) asm volatile("mbarrier.init.b64 [%0], %1;" :: "l"(&bar), "r"(128));
  __syncthreads();
  for (int round = 0; round < 3; round++) {
    a[t] = x[t] + round;
    uint64_t state;
    asm volatile("mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %0, [%1], 1;" : "=l"(state) : "r"(b) : "memory");
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(b) : "memory");
    int ok;
    do asm volatile("{.reg .pred %%p; mbarrier.test_wait.acquire.cta.shared::cta.b64 %%p, [%1], %2; selp.b32 %0, 1, 0, %%p;}" : "=r"(ok) : "r"(b), "l"(state) : "memory"); while (!ok);
    const int got = a[63 - t];
    assert(got == 63 - t + round);
    asm volatile("{.reg .b64 s; mbarrier.arrive.b64 s, [%0], 2;\n .reg .pred q;\n loop: mbarrier.try_wait.b64 q, [%0], s, 1000;\n @!q bra.uni loop;\n}" :: "l"(&bar) : "memory");
    if (round == 2) y[t] = got;
  }
}
