// check --entry k --block 64 --arg x:float32[64] --arg y:float32[64]:out
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[64];
  const int t = threadIdx.x;
  s[t] = x[t];
  asm volatile("bar.sync 0, 64;" ::: "memory");
  y[t] = s[63 - t];
  __syncwarp();
  if (t % 32 >= 16) {
    unsigned elected;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffff0000; selp.u32 %0, 1, 0, p; }" : "=r"(elected));
    if (elected) y[t] += 1;
  }
}
