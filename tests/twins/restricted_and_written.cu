// check --launch restricted.toml
// finds read_only_path
extern "C" __global__ void shifted(const float* __restrict__ x, float* y) {
    const int i = blockIdx.x * 32 + threadIdx.x;
    y[i] = 1.0f;         // <<
    __syncthreads();
    y[i + 64] = x[i ^ 1];  // <<
}
