// check --grid 3 --block 96 --arg x[231] --arg sum[3]:out --arg largest[3]:out --arg n=77

// The last lanes of a row read lanes that take no part, and leave their undefined values out.
__global__ void sums(const float* x, float* sum, float* largest, int n)
{
    __shared__ float of_warp[3], most[3];
    const int t = threadIdx.x, lane = t & 31, warp = t / 32;
    const unsigned lanes = __ballot_sync(0xffffffffu, t < n);
    if (t < n) {
        const int live = __popc(lanes);
        float value = x[blockIdx.x * n + t], top = value;
        for (int step = 16; step > 0; step /= 2) {
            const float other = __shfl_down_sync(lanes, value, step);
            const float other_top = __shfl_down_sync(lanes, top, step);
            if (lane + step < live) value += other;
            if (lane + step < live) top = fmaxf(top, other_top);
        }
        if (lane == 0) of_warp[warp] = value, most[warp] = top;
    }
    __syncthreads();
    if (t == 0) {
        sum[blockIdx.x] = of_warp[0] + of_warp[1] + of_warp[2];
        largest[blockIdx.x] = fmaxf(most[0], fmaxf(most[1], most[2]));
    }
}
