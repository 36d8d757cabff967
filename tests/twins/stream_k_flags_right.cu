// check --launch stream_k_flags.toml
// Stream-K: a block that begins within a tile hands its part over by a flag in global memory.
#include <cuda.h>
#include <cuda_bf16.h>
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
__device__ __forceinline__ void mma_64x64x16(float (&d)[32], uint64_t a, uint64_t b, int scale_d) {
    asm volatile("{\n.reg .pred p;\n"
        "setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1, 0, 0;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(scale_d));
}

constexpr int BM = 64, BN = 64, BK = 64;
__device__ inline void flag_release(int* f, int v) { asm volatile("st.global.release.gpu.b32 [%0], %1;" ::"l"(f), "r"(v) : "memory"); }
__device__ inline int flag_acquire(int* f) { int v; asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(v) : "l"(f) : "memory"); return v; }
// Each block takes `share` k-tiles of the tiles in a row; who does not begin a tile hands its part to the block that does.
__global__ void __launch_bounds__(128) gemm_streamk(const __grid_constant__ CUtensorMap ta, const __grid_constant__ CUtensorMap tb, float* C,
                                                    float* parts, int* flags, int N, int ks, int total, int share) {
    __shared__ alignas(1024) bf16 sa[2][BM * BK];
    __shared__ alignas(1024) bf16 sb[2][BN * BK];
    __shared__ uint64_t full[2];
    const int t = threadIdx.x, tiles_n = N / BN;
    if (t == 0) { ptx::barrier_init(full[0], 1); ptx::barrier_init(full[1], 1); ptx::fence_barrier_init(); }
    __syncthreads();
    int at = blockIdx.x * share, end = min(at + share, total), count = 0;
    while (at < end) {
        const int tile = at / ks, k0 = at % ks, k1 = min(ks, k0 + end - at);
        auto load = [&](int k, int c) {
            ptx::barrier_arrive_tx(full[c & 1], (BM + BN) * BK * 2);
            ptx::load_2d(&ta, full[c & 1], sa[c & 1], k * BK, tile / tiles_n * BM);
            ptx::load_2d(&tb, full[c & 1], sb[c & 1], k * BK, tile % tiles_n * BN);
        };
        float acc[32] = {};
        if (t == 0) load(k0, count);
        for (int k = k0; k < k1; k++, count++) {
            if (t == 0 && k + 1 < k1) load(k + 1, count + 1);
            ptx::barrier_wait(full[count & 1], count >> 1 & 1);
            ptx::wg_arrive();
            for (int kk = 0; kk < 4; kk++) mma_64x64x16(acc, desc128(sa[count & 1]) + 2 * kk, desc128(sb[count & 1]) + 2 * kk, 1);
            ptx::wg_commit();
            ptx::wg_wait<0>();
            __syncthreads();
        }
        at += k1 - k0;
        if (k0 > 0) {  // hand over
            for (int i = 0; i < 32; i++) __stcg(&parts[(size_t)blockIdx.x * BM * BN + i * 128 + t], acc[i]);
            __threadfence();
            __syncthreads();
            if (t == 0) flag_release(&flags[blockIdx.x], 1);
        } else {
            int have = k1;
            for (int b = blockIdx.x + 1; have < ks; b++) {
                if (t == 0) while (flag_acquire(&flags[b]) != 1) __nanosleep(20);
                __syncthreads();
                for (int i = 0; i < 32; i++) acc[i] += __ldcg(&parts[(size_t)b * BM * BN + i * 128 + t]);
                have += share;
            }
            const int row = tile / tiles_n * BM + t / 32 * 16 + t % 32 / 4, col = tile % tiles_n * BN + t % 4 * 2;
            for (int i = 0; i < 32; i += 2) *(float2*)&C[(row + i / 2 % 2 * 8) * N + col + i / 4 * 8] = make_float2(acc[i], acc[i + 1]);
        }
    }
}
