// check --grid 4 --block 64 --arg x[220] --arg largest[4]:out --arg mean[4]:out --arg last:int32[4]:out --arg n=55

// Some variables have no value at first, and no result depends on it.
struct Best {
    float value;
    int at;
    int unused;
};

__global__ void rows(const float* x, float* largest, float* mean, int* last, int n)
{
    __shared__ Best of_warp[2];
    const int t = threadIdx.x;
    float sum = 0.0f, kept;                         // kept: where `has_value`, as below
    float parts[4];                                 // only the first of them is used
    Best best;                                      // `unused` is copied, and never looked at
    best.value = -3.0e38f;
    best.at = -1;
    bool has_value = t < n;
    if (has_value) kept = x[blockIdx.x * n + t];
    parts[0] = 0.0f;
    if (has_value) {
        parts[0] += kept;
        best.value = kept;
        best.at = t;
    }
    sum += parts[0];
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
        float value = __shfl_xor_sync(0xffffffffu, best.value, step);
        int at = __shfl_xor_sync(0xffffffffu, best.at, step);
        if (value > best.value || (value == best.value && at > best.at)) best.value = value, best.at = at;
    }
    __shared__ float sums[2];
    if (t % 32 == 0) of_warp[t / 32] = best, sums[t / 32] = sum;
    __syncthreads();
    if (t == 0) {
        Best other = of_warp[1];
        if (other.value > best.value) best = other;
        largest[blockIdx.x] = best.value;
        last[blockIdx.x] = best.at;
        mean[blockIdx.x] = (sums[0] + sums[1]) / n;
    }
}
