// check --grid 3 --block 32 --arg x[3*29] --arg y[3]:out --arg at:int32[3]:out --arg n=29

// Some variables have no value at first, and no result depends on it.
struct Entry {
    float value;
    int place;
    int spare;                                      // is copied, and never looked at
};

__global__ void smallest(const float* x, float* y, int* at, int n)
{
    __shared__ Entry entries[32];
    const bool is_inside = threadIdx.x < n;
    float own;                                      // only where `is_inside`
    float sign;                                     // one constant, only there
    float parts[4];                                 // only the second of them
    Entry entry;
    if (is_inside) own = x[blockIdx.x * n + threadIdx.x], sign = -1.0f;
    parts[1] = is_inside ? sign * own : 3.0e38f;
    entry.value = parts[1];
    entry.place = threadIdx.x;
    entries[threadIdx.x] = entry;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int other = 1; other < n; ++other)
        if (entries[other].value < entry.value) entry = entries[other];
    y[blockIdx.x] = entry.value;
    at[blockIdx.x] = entry.place;
}
