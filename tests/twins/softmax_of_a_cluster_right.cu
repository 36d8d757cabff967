// check --launch softmax_of_a_cluster.toml
// A row over four blocks: maxima are read from, and sums sent to, the other blocks.
#include <cuda_runtime.h>
#include <cstdint>

__device__ __forceinline__ uint32_t smem(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ uint32_t map_rank(const void* p, uint32_t rank) {
    uint32_t out;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"(smem(p)), "r"(rank));
    return out;
}
__device__ __forceinline__ float ld_cluster(uint32_t at) {
    float v;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(at) : "memory");
    return v;
}
__device__ __forceinline__ void st_async(uint32_t at, float v, uint32_t bar) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(at), "r"(__float_as_uint(v)), "r"(bar) : "memory");
}
__device__ float block_reduce(float v, bool is_max, float* scratch) {
    for (int o = 16; o; o >>= 1) { float w = __shfl_xor_sync(~0u, v, o); v = is_max ? fmaxf(v, w) : v + w; }
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    v = scratch[0];
    for (int i = 1; i < 4; i++) v = is_max ? fmaxf(v, scratch[i]) : v + scratch[i];
    __syncthreads();
    return v;
}
template <int CL> __global__ void __cluster_dims__(CL, 1, 1) long_softmax(const float* x, float* y, int cols) {
    __shared__ float scratch[4], maximum, sums[CL];
    __shared__ alignas(8) uint64_t bar;
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const int part = cols / CL;
    x += (size_t)(blockIdx.x / CL) * cols + rank * part;
    y += (size_t)(blockIdx.x / CL) * cols + rank * part;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem(&bar)), "r"(1));
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem(&bar)), "r"(CL * 4));
    }
    float m = -INFINITY;
    for (int i = threadIdx.x; i < part; i += blockDim.x) m = fmaxf(m, x[i]);
    m = block_reduce(m, true, scratch);
    if (threadIdx.x == 0) maximum = m;
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    for (int r = 0; r < CL; r++) m = fmaxf(m, ld_cluster(map_rank(&maximum, r)));
    float s = 0;
    for (int i = threadIdx.x; i < part; i += blockDim.x) s += exp2f(x[i] - m);
    s = block_reduce(s, false, scratch);
    if (threadIdx.x < CL) st_async(map_rank(&sums[rank], threadIdx.x), s, map_rank(&bar, threadIdx.x));
    asm volatile("{\n.reg .pred p;\nW:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;\n@!p bra W;\n}" ::"r"(smem(&bar)) : "memory");
    s = 0;
    for (int r = 0; r < CL; r++) s += sums[r];
    for (int i = threadIdx.x; i < part; i += blockDim.x) y[i] = exp2f(x[i] - m) / s;
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
template __global__ void long_softmax<4>(const float*, float*, int);
