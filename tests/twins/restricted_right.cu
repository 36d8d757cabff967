// check --launch restricted.toml -D SHIFT=64
extern "C" __global__ void shifted(const float* __restrict__ x, float* y) {
    const int i = blockIdx.x * 32 + threadIdx.x;
    y[i + SHIFT] = 1.0f;
    y[i + SHIFT] += 2.0f * x[i ^ 1];
}
