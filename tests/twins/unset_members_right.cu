// check --grid 2 --block 32 --arg x[512] --arg y[64]:out --arg z:half[64]:out --arg n=8
#include <cuda_fp16.h>

// Members that a constructor sets, an array that stays in memory, and a number of 16 bits.
template <int N> struct Parts {
    float value[N];
    signed char code[N];
    __device__ Parts(float first)
    {
        for (int i = 0; i < N; ++i) value[i] = first;
        for (int i = 0; i < N; ++i) code[i] = -3;
    }
    __device__ float sum() const
    {
        float all = 0;
        for (int i = 0; i < N; ++i) all += value[i] + code[i];
        return all;
    }
};

__global__ void sums(const float* x, float* y, __half* z, int n)
{
    const int t = blockIdx.x * 32 + threadIdx.x;
    Parts<8> parts(0.0f);
    __half half_sum = __float2half(0.0f);
    float largest[8];
    for (int i = 0; i < 8; ++i) largest[i] = -3.0e38f;
    for (int i = 0; i < n; ++i) {
        parts.value[(i + t) % 8] += x[t * n + i];
        largest[i % 4] = fmaxf(largest[i % 4], x[t * n + i]);
        half_sum = __hadd(half_sum, __float2half(x[t * n + i]));
    }
    y[t] = parts.sum() + largest[0] + largest[(n - 1) % 4];
    z[t] = half_sum;
}
