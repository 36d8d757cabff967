// check --launch ping_pong_in_turns.toml
// Two warpgroups multiply in turns: named barriers 1 to 4 order their products and their epilogues.
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

constexpr int BM = 64, BN = 64, BK = 64, STAGES = 4;
struct Smem {
    alignas(1024) bf16 a[STAGES][BM * BK];
    alignas(1024) bf16 b[STAGES][BN * BK];
    uint64_t full[STAGES], empty[STAGES];
};
struct Pipe { int stage = 0; uint32_t phase = 0;
    __device__ void advance(int n) { for (int i = 0; i < n; i++) if (++stage == STAGES) { stage = 0; phase ^= 1; } } };
// Math and epilogue of two warpgroups in turns: barrier 2*group + what, of 256 threads.
struct OrderBarrier {
    int group;
    __device__ void wait(int what) { ptx::named_sync(256, 1 + 2 * group + what); }
    __device__ void pass(int what) { ptx::named_arrive(256, 1 + 2 * (group ^ 1) + what); }
};
__global__ void __launch_bounds__(384) gemm_pingpong(const __grid_constant__ CUtensorMap ta, const __grid_constant__ CUtensorMap tb,
                                                     float* C, int M, int N, int K) {
    extern __shared__ uint8_t raw[];
    Smem& s = *reinterpret_cast<Smem*>(((uintptr_t)raw + 1023) & ~uintptr_t(1023));
    const int wg = threadIdx.x >> 7, tiles_n = N / BN, tiles = M / BM * tiles_n, ks = K / BK;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) { ptx::barrier_init(s.full[i], 1); ptx::barrier_init(s.empty[i], 128); }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (wg == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) {
            Pipe p;
            for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
                for (int k = 0; k < ks; k++) {
                    ptx::barrier_wait(s.empty[p.stage], p.phase ^ 1);
                    ptx::barrier_arrive_tx(s.full[p.stage], (BM + BN) * BK * 2);
                    ptx::load_2d(&ta, s.full[p.stage], s.a[p.stage], k * BK, tile / tiles_n * BM);
                    ptx::load_2d(&tb, s.full[p.stage], s.b[p.stage], k * BK, tile % tiles_n * BN);
                    p.advance(1);
                }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    OrderBarrier order{wg - 1};
    if (wg == 2) { order.pass(0); order.pass(1); }  // the first group may begin
    Pipe p;
    if (wg == 2) p.advance(ks);
    for (int tile = blockIdx.x + (wg - 1) * gridDim.x; tile < tiles; tile += 2 * gridDim.x) {
        float acc[32];
        order.wait(0);
        int last = 0;
        for (int k = 0; k < ks; k++) {
            ptx::barrier_wait(s.full[p.stage], p.phase);
            ptx::wg_arrive();
#pragma unroll
            for (int kk = 0; kk < BK / 16; kk++)
                mma_64x64x16(acc, desc128(s.a[p.stage]) + 2 * kk, desc128(s.b[p.stage]) + 2 * kk, k + kk > 0);
            ptx::wg_commit();
            ptx::wg_wait<1>();
            if (k > 0) ptx::barrier_arrive(s.empty[last]);
            last = p.stage;
            p.advance(1);
        }
        order.pass(0);
        ptx::wg_wait<0>();
        ptx::barrier_arrive(s.empty[last]);
        p.advance(ks);
        order.wait(1);
        const int t = threadIdx.x % 128, row = tile / tiles_n * BM + t / 32 * 16 + t % 32 / 4, col = tile % tiles_n * BN + t % 4 * 2;
#pragma unroll
        for (int j = 0; j < 16; j++) {
            float2 v = make_float2(acc[2 * j], acc[2 * j + 1]);
            *(float2*)&C[(row + j % 2 * 8) * N + col + j / 2 * 8] = v;
        }
        order.pass(1);
    }
}
