// check --grid 3 --block 64 --arg x[192] --arg sum[3]:out

// Lanes 8 to 15 add values of lanes that take no part, and lane 0 reads none of these sums.
__global__ void half_warps(const float* x, float* sum)
{
    __shared__ float parts[16];
    const int t = threadIdx.x;
    if (t < 16) parts[t] = 0.0f;
    __syncthreads();
    atomicAdd(&parts[t / 4], x[blockIdx.x * 64 + t]);
    __syncthreads();
    if (t < 16) {
        float value = parts[t];
        for (int step = 8; step > 0; step /= 2) value += __shfl_down_sync(0xffffu, value, step);
        if (t == 0) sum[blockIdx.x] = value;
    }
}
