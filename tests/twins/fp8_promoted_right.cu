// check --launch fp8_promoted.toml
// fp8 products whose accumulators are scaled and added up every 128 elements of K.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <stdint.h>

using bf16 = __nv_bfloat16;
namespace ptx {
__device__ inline uint32_t saddr(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ inline void barrier_init(uint64_t& b, int count) {
    uint32_t a = saddr(&b);
    asm volatile("mbarrier.init.shared::cta.b64 [%1], %0;" ::"r"(count), "r"(a));
}
__device__ inline void barrier_wait(uint64_t& b, int parity) {
    asm volatile("{\n.reg .pred over;\nagain_%=:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
                 "@!over bra again_%=;\n}" ::"r"(saddr(&b)), "r"(parity) : "memory");
}
__device__ inline void barrier_arrive(uint64_t& b) {
    uint32_t a = saddr(&b);
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(a));
}
__device__ inline void barrier_arrive_tx(uint64_t& b, uint32_t bytes) {
    uint32_t a = saddr(&b);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%1], %0;" ::"r"(bytes), "r"(a));
}
__device__ inline void load_2d(const CUtensorMap* m, uint64_t& b, void* dst, int c0, int c1) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(saddr(dst)), "l"((uint64_t)m), "r"(saddr(&b)), "r"(c0), "r"(c1),
        "l"(0x14F0000000000000ull) : "memory");
}
__device__ inline void store_2d(const CUtensorMap* m, const void* src, int c0, int c1) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"((uint64_t)m), "r"(saddr(src)),
                 "r"(c0), "r"(c1) : "memory");
}
__device__ inline void store_commit() { asm volatile("cp.async.bulk.commit_group;"); }
template <int N> __device__ inline void store_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
__device__ inline void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void fence_view_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
template <uint32_t R> __device__ inline void reg_alloc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" : : "n"(R)); }
template <uint32_t R> __device__ inline void reg_dealloc() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" : : "n"(R)); }
__device__ inline void named_sync(uint32_t n, uint32_t id) { asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(n)); }
__device__ inline void named_arrive(uint32_t n, uint32_t id) { asm volatile("bar.arrive %0, %1;" : : "r"(id), "r"(n)); }
__device__ inline void wg_arrive() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ inline void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
template <int N> __device__ inline void wg_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory"); }
}  // namespace ptx
__device__ inline uint64_t desc128(const void* p) {
    return ptx::saddr(p) >> 4 & 0x3fff | uint64_t(1024 >> 4) << 32 | 1ull << 62;
}
__device__ __forceinline__ void mma_64x64x32(float (&d)[32], uint64_t a, uint64_t b, int scale_d) {
    asm volatile("{\n.reg .pred p;\n"
        "setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(scale_d));
}

constexpr int BM = 64, BN = 64, BK = 128, STAGES = 2;
struct Smem {
    alignas(1024) __nv_fp8_e4m3 a[STAGES][BM * BK];
    alignas(1024) __nv_fp8_e4m3 b[STAGES][BN * BK];
    alignas(128) float scale_a[STAGES][BM];
    uint64_t full[STAGES], empty[STAGES];
};
// a: M x K e4m3, b: N x K e4m3; scale_a: K/128 x M; scale_b: N/64 x K/128
__global__ void __launch_bounds__(256) fp8_gemm(const __grid_constant__ CUtensorMap ta, const __grid_constant__ CUtensorMap tb,
                                                const __grid_constant__ CUtensorMap tsa, const float* __restrict__ scale_b,
                                                __nv_bfloat16* C, int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Smem& s = *reinterpret_cast<Smem*>(raw);
    const int ks = K / BK;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) { ptx::barrier_init(s.full[i], 1); ptx::barrier_init(s.empty[i], 4); }
        asm volatile("fence.proxy.async;" ::: "memory");
        ptx::fence_barrier_init();
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
        ptx::reg_dealloc<40>();
        if (threadIdx.x == 128)
            for (int k = 0; k < ks; k++) {
                const int q = k % STAGES;
                ptx::barrier_wait(s.empty[q], (k / STAGES + 1) & 1);
                uint64_t& bar = s.full[q];
                ptx::load_2d(&ta, bar, s.a[q], k * BK, blockIdx.y * BM);
                ptx::load_2d(&tsa, bar, s.scale_a[q], blockIdx.y * BM, k);
                ptx::load_2d(&tb, bar, s.b[q], k * BK, blockIdx.x * BN);
                ptx::barrier_arrive_tx(bar, BM * BK + BN * BK + BM * sizeof(float));
            }
    } else {
        ptx::reg_alloc<232>();
        const int t = threadIdx.x, lane = t % 32, r = t / 32 * 16 + lane / 4;
        float part[32], sum[32] = {0};
        for (int k = 0; k < ks; k++) {
            const int q = k % STAGES;
            const float sb = __ldg(scale_b + blockIdx.x * ks + k);
            ptx::barrier_wait(s.full[q], k / STAGES & 1);
            float s0, s1;
            asm volatile("ld.shared.f32 %0, [%1];" : "=f"(s0) : "r"(ptx::saddr(&s.scale_a[q][r])));
            asm volatile("ld.shared.f32 %0, [%1];" : "=f"(s1) : "r"(ptx::saddr(&s.scale_a[q][r + 8])));
            for (int i = 0; i < 32; i++) asm volatile("" : "+f"(part[i]) :: "memory");
            ptx::wg_arrive();
#pragma unroll
            for (int kk = 0; kk < BK / 32; kk++) mma_64x64x32(part, desc128(s.a[q] + kk * 32), desc128(s.b[q] + kk * 32), kk);
            ptx::wg_commit();
            for (int i = 0; i < 32; i++) asm volatile("" : "+f"(part[i]) :: "memory");
            ptx::wg_wait<0>();
            __syncwarp();
            if (lane == 0) ptx::barrier_arrive(s.empty[q]);
#pragma unroll
            for (int i = 0; i < 32; i++) sum[i] += (i / 2 % 2 ? s1 : s0) * sb * part[i];
        }
#pragma unroll
        for (int i = 0; i < 32; i += 2)
            *(__nv_bfloat162*)&C[(size_t)(blockIdx.y * BM + r + i / 2 % 2 * 8) * N + blockIdx.x * BN + i / 4 * 8 + lane % 4 * 2] =
                __floats2bfloat162_rn(sum[i], sum[i + 1]);
    }
}
