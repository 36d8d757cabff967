// check --launch scores_in_registers.toml
// Attention whose second product takes A, the exponentials of the scores, from registers.
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
__device__ __forceinline__ void qk_64x64x16(float (&d)[32], uint64_t a, uint64_t b, int scale_d) {
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
__device__ __forceinline__ void pv_64x64x16(float (&d)[32], const uint32_t (&a)[4], uint64_t b, int scale_d) {
    asm volatile("{\n.reg .pred p;\n"
        "setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(scale_d));
}

constexpr int BM = 64, BN = 64, D = 64, STAGES = 2;
struct Smem {
    alignas(1024) bf16 q[BM * D];
    alignas(1024) bf16 k[STAGES][BN * D];
    alignas(1024) bf16 v[STAGES][BN * D];
    uint64_t q_full, k_full[STAGES], v_full[STAGES], k_empty[STAGES], v_empty[STAGES];
};
__device__ inline float quad_max(float x) { x = fmaxf(x, __shfl_xor_sync(~0u, x, 1)); return fmaxf(x, __shfl_xor_sync(~0u, x, 2)); }
__device__ inline float quad_sum(float x) { x += __shfl_xor_sync(~0u, x, 1); return x + __shfl_xor_sync(~0u, x, 2); }
__device__ inline uint32_t pack(float lo, float hi) { __nv_bfloat162 t = __floats2bfloat162_rn(lo, hi); return *reinterpret_cast<uint32_t*>(&t); }
// Q, K, V: [heads, S, D]; V is read as it lies (keys outermost), so its descriptor is transposed.
__global__ void __launch_bounds__(256, 1) attend(const __grid_constant__ CUtensorMap tq, const __grid_constant__ CUtensorMap tk,
                                                 const __grid_constant__ CUtensorMap tv, bf16* O, int S, float scale_log2) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Smem& s = *reinterpret_cast<Smem*>(raw);
    const int tiles = S / BN, head = blockIdx.y;
    if (threadIdx.x == 0) {
        ptx::barrier_init(s.q_full, 1);
        for (int i = 0; i < STAGES; i++) {
            ptx::barrier_init(s.k_full[i], 1); ptx::barrier_init(s.v_full[i], 1);
            ptx::barrier_init(s.k_empty[i], 1); ptx::barrier_init(s.v_empty[i], 1);
        }
        ptx::fence_barrier_init();
    }
    __syncthreads();
    auto load3 = [](const CUtensorMap* m, uint64_t& bar, void* to, int y, int z) {
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
                     ::"r"(ptx::saddr(to)), "l"(m), "r"(ptx::saddr(&bar)), "r"(0), "r"(y), "r"(z) : "memory");
    };
    if (threadIdx.x >= 128) {
        ptx::reg_dealloc<24>();
        if (threadIdx.x == 128) {
            ptx::barrier_arrive_tx(s.q_full, sizeof(s.q));
            load3(&tq, s.q_full, s.q, blockIdx.x * BM, head);
            for (int j = 0; j < tiles; j++) {
                const int st = j % STAGES, ph = (j / STAGES) & 1;
                ptx::barrier_wait(s.k_empty[st], ph ^ 1);
                ptx::barrier_arrive_tx(s.k_full[st], sizeof(s.k[0]));
                load3(&tk, s.k_full[st], s.k[st], j * BN, head);
                ptx::barrier_wait(s.v_empty[st], ph ^ 1);
                ptx::barrier_arrive_tx(s.v_full[st], sizeof(s.v[0]));
                load3(&tv, s.v_full[st], s.v[st], j * BN, head);
            }
        }
        return;
    }
    ptx::reg_alloc<240>();
    const int t = threadIdx.x, lane = t % 32;
    float o[32] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
    ptx::barrier_wait(s.q_full, 0);
    for (int j = 0; j < tiles; j++) {
        const int st = j % STAGES, ph = (j / STAGES) & 1;
        float p[32];
        ptx::barrier_wait(s.k_full[st], ph);
        ptx::wg_arrive();
#pragma unroll
        for (int kk = 0; kk < D / 16; kk++) qk_64x64x16(p, desc128(s.q) + 2 * kk, desc128(s.k[st]) + 2 * kk, kk);
        ptx::wg_commit();
        ptx::wg_wait<0>();
        if (t == 0) ptx::barrier_arrive(s.k_empty[st]);
        uint32_t a[4][4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = m[h];
            for (int i = 0; i < 8; i++) top = fmaxf(top, fmaxf(p[4 * i + 2 * h], p[4 * i + 2 * h + 1]));
            top = quad_max(top);
            const float factor = exp2f((m[h] - top) * scale_log2);
            m[h] = top;
            float sum = 0;
            for (int i = 0; i < 8; i++)
                for (int e = 0; e < 2; e++) {
                    float& x = p[4 * i + 2 * h + e];
                    x = exp2f((x - top) * scale_log2);
                    sum += x;
                }
            l[h] = l[h] * factor + quad_sum(sum);
            for (int i = 0; i < 8; i++) { o[4 * i + 2 * h] *= factor; o[4 * i + 2 * h + 1] *= factor; }
        }
        for (int kk = 0; kk < 4; kk++)
            for (int r = 0; r < 4; r++) a[kk][r] = pack(p[8 * kk + 2 * r], p[8 * kk + 2 * r + 1]);
        ptx::barrier_wait(s.v_full[st], ph);
        ptx::wg_arrive();
#pragma unroll
        for (int kk = 0; kk < BN / 16; kk++) pv_64x64x16(o, a[kk], desc128(s.v[st]) + kk * 128, 1);
        ptx::wg_commit();
        ptx::wg_wait<0>();
        if (t == 0) ptx::barrier_arrive(s.v_empty[st]);
    }
    const int row = blockIdx.x * BM + t / 32 * 16 + lane / 4;
    for (int i = 0; i < 32; i += 2) {
        const int h = i / 2 % 2;
        *(__nv_bfloat162*)&O[((size_t)head * S + row + 8 * h) * D + i / 4 * 8 + lane % 4 * 2] = __floats2bfloat162_rn(o[i] / l[h], o[i + 1] / l[h]);
    }
}
