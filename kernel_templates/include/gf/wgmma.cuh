#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "gf/mbarrier.cuh"

namespace gf {

// Matrix products of a warpgroup: four warps, the first of them a multiple of four, issue D[64, N] = A[64, K]
// B[K, N] (+ D), and the tensor cores work behind their backs. A comes from shared memory or from registers, B
// from shared memory, D is float in registers. K is 16 for half and bfloat16 and 32 for the 8-bit types; N is a
// multiple of 8 up to 256. Needs sm_90a. PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
//
// Thread t of the warpgroup has rows 16 (t / 32) + t % 32 / 4 (+ 8) of D: acc[4 j + 2 h + c] is row + 8 h,
// column 8 j + 2 (t % 4) + c. A in registers: a[2 k + h] holds row + 8 h, columns 8 k + 2 (t % 4) and the next
// (16-bit types), or 16 k + 4 (t % 4) and the next three (8-bit types).

// How a matrix lies in shared memory, as 64 bits: address, two distances and the swizzle, 0, 32, 64 or 128 bytes.
// K-major with a swizzle: rows of `swizzle_bytes`, `stride_bytes` from one group of 8 rows to the next,
// `leading_bytes` unused. Transposed (M- or N-major): rows run along K, `stride_bytes` from one group of 8 of
// them to the next, `leading_bytes` from one piece of swizzle_bytes along M or N to the next. The tile starts at
// a multiple of 8 swizzle_bytes; a step inside of a swizzled row adds its bytes to the address. PTX ISA, "Matrix
// Descriptor Format".
//! Undefined: a tile that starts elsewhere or has other distances than its swizzle needs (the emulator: `misaligned`)
//! or ends beyond shared memory (`out_of_bounds`). Of an address or a distance that is not a multiple of 16, or not
//! below 2^18, bits are dropped, which nothing reports.
template <int swizzle_bytes>
__device__ __forceinline__ unsigned long long matrix_descriptor(const void* shared, unsigned leading_bytes,
                                                                unsigned stride_bytes) {
    static_assert(swizzle_bytes == 0 || swizzle_bytes == 32 || swizzle_bytes == 64 || swizzle_bytes == 128,
                  "no swizzle, or one of 32, 64 or 128 bytes");
    constexpr unsigned long long mode = swizzle_bytes == 0 ? 0 : swizzle_bytes == 128 ? 1 : swizzle_bytes == 64 ? 2 : 3;
    return (shared_address(shared) & 0x3ffffull) >> 4 | (leading_bytes & 0x3ffffull) >> 4 << 16 |
           (stride_bytes & 0x3ffffull) >> 4 << 32 | mode << 62;
}

// Before the first product, and after this warp's own accesses to the accumulators or to A's registers. PTX ISA,
// "wgmma.fence".
//! Undefined: a call in diverged code (the emulator: `divergence`), and a product without it, which may take its
//! accumulators and A's registers before they are written (`race`). It does not order accesses to shared memory:
//! proxy_fence_shared does.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Close the group of products issued since the last commit. PTX ISA, "wgmma.commit_group".
//! Undefined: a call in diverged code (the emulator: `divergence`). Products that were not committed are not waited
//! for (`in_flight_read`, `unwaited_copy`).
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Wait until at most `groups_left_in_flight` of the newest groups are unfinished. Until then nobody may read or
// change the accumulators, A's registers or the shared memory of a group. PTX ISA, "wgmma.wait_group".
//! Undefined: a call in diverged code (the emulator: `divergence`), and registers or shared memory of a group that are
//! touched before it (`in_flight_read`, `race`; nothing reports a change of A's registers).
template <int groups_left_in_flight>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups_left_in_flight) : "memory");
}

// The instructions of one shape; GF_WGMMA_SHAPE declares it.
//! Undefined: nothing; a shape that is not declared does not compile.
template <class T, int N>
struct WgmmaShape;

// acc[64, N] = A B, + acc where `accumulate`; A and B by descriptor, K-major unless transposed (16-bit types only).
//! Undefined: a call that not all 128 threads of the warpgroup run together, with the same descriptors (the emulator:
//! `divergence`); operands that threads wrote without a proxy_fence_shared and a barrier (`race`); no wgmma_fence
//! before; and in which order and how rounded the products are summed.
template <class T, int N, bool transpose_a = false, bool transpose_b = false>
__device__ __forceinline__ void wgmma(float (&acc)[N / 2], unsigned long long a, unsigned long long b,
                                      bool accumulate) {
    static_assert(sizeof(T) == 2 || !transpose_a && !transpose_b, "8-bit operands are K-major");
    WgmmaShape<T, N>::template product<transpose_a, transpose_b>(acc, a, b, accumulate);
}

// The same with A in registers.
//! Undefined: the same; A's registers may change only behind wgmma_wait.
template <class T, int N, bool transpose_b = false>
__device__ __forceinline__ void wgmma(float (&acc)[N / 2], const unsigned (&a)[4], unsigned long long b,
                                      bool accumulate) {
    static_assert(sizeof(T) == 2 || !transpose_b, "8-bit operands are K-major");
    WgmmaShape<T, N>::template product<transpose_b>(acc, a, b, accumulate);
}

}  // namespace gf

// PTX of an instruction: its type and depth, and which flags its operands take.
#define GF_WGMMA_OP___half(N) "m64n" #N "k16.f32.f16.f16"
#define GF_WGMMA_OP___nv_bfloat16(N) "m64n" #N "k16.f32.bf16.bf16"
#define GF_WGMMA_OP___nv_fp8_e4m3(N) "m64n" #N "k32.f32.e4m3.e4m3"
#define GF_WGMMA_OP___nv_fp8_e5m2(N) "m64n" #N "k32.f32.e5m2.e5m2"
#define GF_WGMMA_FLAGS2___half(a, b) ", " a ", " b
#define GF_WGMMA_FLAGS2___nv_bfloat16(a, b) ", " a ", " b
#define GF_WGMMA_FLAGS2___nv_fp8_e4m3(a, b) ""
#define GF_WGMMA_FLAGS2___nv_fp8_e5m2(a, b) ""
#define GF_WGMMA_FLAGS1___half(b) ", " b
#define GF_WGMMA_FLAGS1___nv_bfloat16(b) ", " b
#define GF_WGMMA_FLAGS1___nv_fp8_e4m3(b) ""
#define GF_WGMMA_FLAGS1___nv_fp8_e5m2(b) ""

// The accumulator's registers as text and as operands, and the numbers of the seven operands behind them.
#define GF_WGMMA_TEXT_8 "%0, %1, %2, %3"
#define GF_WGMMA_TEXT_16 GF_WGMMA_TEXT_8 ", %4, %5, %6, %7"
#define GF_WGMMA_TEXT_24 GF_WGMMA_TEXT_16 ", %8, %9, %10, %11"
#define GF_WGMMA_TEXT_32 GF_WGMMA_TEXT_24 ", %12, %13, %14, %15"
#define GF_WGMMA_TEXT_40 GF_WGMMA_TEXT_32 ", %16, %17, %18, %19"
#define GF_WGMMA_TEXT_48 GF_WGMMA_TEXT_40 ", %20, %21, %22, %23"
#define GF_WGMMA_TEXT_56 GF_WGMMA_TEXT_48 ", %24, %25, %26, %27"
#define GF_WGMMA_TEXT_64 GF_WGMMA_TEXT_56 ", %28, %29, %30, %31"
#define GF_WGMMA_TEXT_72 GF_WGMMA_TEXT_64 ", %32, %33, %34, %35"
#define GF_WGMMA_TEXT_80 GF_WGMMA_TEXT_72 ", %36, %37, %38, %39"
#define GF_WGMMA_TEXT_88 GF_WGMMA_TEXT_80 ", %40, %41, %42, %43"
#define GF_WGMMA_TEXT_96 GF_WGMMA_TEXT_88 ", %44, %45, %46, %47"
#define GF_WGMMA_TEXT_104 GF_WGMMA_TEXT_96 ", %48, %49, %50, %51"
#define GF_WGMMA_TEXT_112 GF_WGMMA_TEXT_104 ", %52, %53, %54, %55"
#define GF_WGMMA_TEXT_120 GF_WGMMA_TEXT_112 ", %56, %57, %58, %59"
#define GF_WGMMA_TEXT_128 GF_WGMMA_TEXT_120 ", %60, %61, %62, %63"
#define GF_WGMMA_TEXT_136 GF_WGMMA_TEXT_128 ", %64, %65, %66, %67"
#define GF_WGMMA_TEXT_144 GF_WGMMA_TEXT_136 ", %68, %69, %70, %71"
#define GF_WGMMA_TEXT_152 GF_WGMMA_TEXT_144 ", %72, %73, %74, %75"
#define GF_WGMMA_TEXT_160 GF_WGMMA_TEXT_152 ", %76, %77, %78, %79"
#define GF_WGMMA_TEXT_168 GF_WGMMA_TEXT_160 ", %80, %81, %82, %83"
#define GF_WGMMA_TEXT_176 GF_WGMMA_TEXT_168 ", %84, %85, %86, %87"
#define GF_WGMMA_TEXT_184 GF_WGMMA_TEXT_176 ", %88, %89, %90, %91"
#define GF_WGMMA_TEXT_192 GF_WGMMA_TEXT_184 ", %92, %93, %94, %95"
#define GF_WGMMA_TEXT_200 GF_WGMMA_TEXT_192 ", %96, %97, %98, %99"
#define GF_WGMMA_TEXT_208 GF_WGMMA_TEXT_200 ", %100, %101, %102, %103"
#define GF_WGMMA_TEXT_216 GF_WGMMA_TEXT_208 ", %104, %105, %106, %107"
#define GF_WGMMA_TEXT_224 GF_WGMMA_TEXT_216 ", %108, %109, %110, %111"
#define GF_WGMMA_TEXT_232 GF_WGMMA_TEXT_224 ", %112, %113, %114, %115"
#define GF_WGMMA_TEXT_240 GF_WGMMA_TEXT_232 ", %116, %117, %118, %119"
#define GF_WGMMA_TEXT_248 GF_WGMMA_TEXT_240 ", %120, %121, %122, %123"
#define GF_WGMMA_TEXT_256 GF_WGMMA_TEXT_248 ", %124, %125, %126, %127"
#define GF_WGMMA_ACC_8 "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
#define GF_WGMMA_ACC_16 GF_WGMMA_ACC_8, "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]), "+f"(acc[7])
#define GF_WGMMA_ACC_24 GF_WGMMA_ACC_16, "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11])
#define GF_WGMMA_ACC_32 GF_WGMMA_ACC_24, "+f"(acc[12]), "+f"(acc[13]), "+f"(acc[14]), "+f"(acc[15])
#define GF_WGMMA_ACC_40 GF_WGMMA_ACC_32, "+f"(acc[16]), "+f"(acc[17]), "+f"(acc[18]), "+f"(acc[19])
#define GF_WGMMA_ACC_48 GF_WGMMA_ACC_40, "+f"(acc[20]), "+f"(acc[21]), "+f"(acc[22]), "+f"(acc[23])
#define GF_WGMMA_ACC_56 GF_WGMMA_ACC_48, "+f"(acc[24]), "+f"(acc[25]), "+f"(acc[26]), "+f"(acc[27])
#define GF_WGMMA_ACC_64 GF_WGMMA_ACC_56, "+f"(acc[28]), "+f"(acc[29]), "+f"(acc[30]), "+f"(acc[31])
#define GF_WGMMA_ACC_72 GF_WGMMA_ACC_64, "+f"(acc[32]), "+f"(acc[33]), "+f"(acc[34]), "+f"(acc[35])
#define GF_WGMMA_ACC_80 GF_WGMMA_ACC_72, "+f"(acc[36]), "+f"(acc[37]), "+f"(acc[38]), "+f"(acc[39])
#define GF_WGMMA_ACC_88 GF_WGMMA_ACC_80, "+f"(acc[40]), "+f"(acc[41]), "+f"(acc[42]), "+f"(acc[43])
#define GF_WGMMA_ACC_96 GF_WGMMA_ACC_88, "+f"(acc[44]), "+f"(acc[45]), "+f"(acc[46]), "+f"(acc[47])
#define GF_WGMMA_ACC_104 GF_WGMMA_ACC_96, "+f"(acc[48]), "+f"(acc[49]), "+f"(acc[50]), "+f"(acc[51])
#define GF_WGMMA_ACC_112 GF_WGMMA_ACC_104, "+f"(acc[52]), "+f"(acc[53]), "+f"(acc[54]), "+f"(acc[55])
#define GF_WGMMA_ACC_120 GF_WGMMA_ACC_112, "+f"(acc[56]), "+f"(acc[57]), "+f"(acc[58]), "+f"(acc[59])
#define GF_WGMMA_ACC_128 GF_WGMMA_ACC_120, "+f"(acc[60]), "+f"(acc[61]), "+f"(acc[62]), "+f"(acc[63])
#define GF_WGMMA_ACC_136 GF_WGMMA_ACC_128, "+f"(acc[64]), "+f"(acc[65]), "+f"(acc[66]), "+f"(acc[67])
#define GF_WGMMA_ACC_144 GF_WGMMA_ACC_136, "+f"(acc[68]), "+f"(acc[69]), "+f"(acc[70]), "+f"(acc[71])
#define GF_WGMMA_ACC_152 GF_WGMMA_ACC_144, "+f"(acc[72]), "+f"(acc[73]), "+f"(acc[74]), "+f"(acc[75])
#define GF_WGMMA_ACC_160 GF_WGMMA_ACC_152, "+f"(acc[76]), "+f"(acc[77]), "+f"(acc[78]), "+f"(acc[79])
#define GF_WGMMA_ACC_168 GF_WGMMA_ACC_160, "+f"(acc[80]), "+f"(acc[81]), "+f"(acc[82]), "+f"(acc[83])
#define GF_WGMMA_ACC_176 GF_WGMMA_ACC_168, "+f"(acc[84]), "+f"(acc[85]), "+f"(acc[86]), "+f"(acc[87])
#define GF_WGMMA_ACC_184 GF_WGMMA_ACC_176, "+f"(acc[88]), "+f"(acc[89]), "+f"(acc[90]), "+f"(acc[91])
#define GF_WGMMA_ACC_192 GF_WGMMA_ACC_184, "+f"(acc[92]), "+f"(acc[93]), "+f"(acc[94]), "+f"(acc[95])
#define GF_WGMMA_ACC_200 GF_WGMMA_ACC_192, "+f"(acc[96]), "+f"(acc[97]), "+f"(acc[98]), "+f"(acc[99])
#define GF_WGMMA_ACC_208 GF_WGMMA_ACC_200, "+f"(acc[100]), "+f"(acc[101]), "+f"(acc[102]), "+f"(acc[103])
#define GF_WGMMA_ACC_216 GF_WGMMA_ACC_208, "+f"(acc[104]), "+f"(acc[105]), "+f"(acc[106]), "+f"(acc[107])
#define GF_WGMMA_ACC_224 GF_WGMMA_ACC_216, "+f"(acc[108]), "+f"(acc[109]), "+f"(acc[110]), "+f"(acc[111])
#define GF_WGMMA_ACC_232 GF_WGMMA_ACC_224, "+f"(acc[112]), "+f"(acc[113]), "+f"(acc[114]), "+f"(acc[115])
#define GF_WGMMA_ACC_240 GF_WGMMA_ACC_232, "+f"(acc[116]), "+f"(acc[117]), "+f"(acc[118]), "+f"(acc[119])
#define GF_WGMMA_ACC_248 GF_WGMMA_ACC_240, "+f"(acc[120]), "+f"(acc[121]), "+f"(acc[122]), "+f"(acc[123])
#define GF_WGMMA_ACC_256 GF_WGMMA_ACC_248, "+f"(acc[124]), "+f"(acc[125]), "+f"(acc[126]), "+f"(acc[127])
#define GF_WGMMA_REST_8 "%4", "%5", "%6", "%7", "%8", "%9", "%10"
#define GF_WGMMA_REST_16 "%8", "%9", "%10", "%11", "%12", "%13", "%14"
#define GF_WGMMA_REST_24 "%12", "%13", "%14", "%15", "%16", "%17", "%18"
#define GF_WGMMA_REST_32 "%16", "%17", "%18", "%19", "%20", "%21", "%22"
#define GF_WGMMA_REST_40 "%20", "%21", "%22", "%23", "%24", "%25", "%26"
#define GF_WGMMA_REST_48 "%24", "%25", "%26", "%27", "%28", "%29", "%30"
#define GF_WGMMA_REST_56 "%28", "%29", "%30", "%31", "%32", "%33", "%34"
#define GF_WGMMA_REST_64 "%32", "%33", "%34", "%35", "%36", "%37", "%38"
#define GF_WGMMA_REST_72 "%36", "%37", "%38", "%39", "%40", "%41", "%42"
#define GF_WGMMA_REST_80 "%40", "%41", "%42", "%43", "%44", "%45", "%46"
#define GF_WGMMA_REST_88 "%44", "%45", "%46", "%47", "%48", "%49", "%50"
#define GF_WGMMA_REST_96 "%48", "%49", "%50", "%51", "%52", "%53", "%54"
#define GF_WGMMA_REST_104 "%52", "%53", "%54", "%55", "%56", "%57", "%58"
#define GF_WGMMA_REST_112 "%56", "%57", "%58", "%59", "%60", "%61", "%62"
#define GF_WGMMA_REST_120 "%60", "%61", "%62", "%63", "%64", "%65", "%66"
#define GF_WGMMA_REST_128 "%64", "%65", "%66", "%67", "%68", "%69", "%70"
#define GF_WGMMA_REST_136 "%68", "%69", "%70", "%71", "%72", "%73", "%74"
#define GF_WGMMA_REST_144 "%72", "%73", "%74", "%75", "%76", "%77", "%78"
#define GF_WGMMA_REST_152 "%76", "%77", "%78", "%79", "%80", "%81", "%82"
#define GF_WGMMA_REST_160 "%80", "%81", "%82", "%83", "%84", "%85", "%86"
#define GF_WGMMA_REST_168 "%84", "%85", "%86", "%87", "%88", "%89", "%90"
#define GF_WGMMA_REST_176 "%88", "%89", "%90", "%91", "%92", "%93", "%94"
#define GF_WGMMA_REST_184 "%92", "%93", "%94", "%95", "%96", "%97", "%98"
#define GF_WGMMA_REST_192 "%96", "%97", "%98", "%99", "%100", "%101", "%102"
#define GF_WGMMA_REST_200 "%100", "%101", "%102", "%103", "%104", "%105", "%106"
#define GF_WGMMA_REST_208 "%104", "%105", "%106", "%107", "%108", "%109", "%110"
#define GF_WGMMA_REST_216 "%108", "%109", "%110", "%111", "%112", "%113", "%114"
#define GF_WGMMA_REST_224 "%112", "%113", "%114", "%115", "%116", "%117", "%118"
#define GF_WGMMA_REST_232 "%116", "%117", "%118", "%119", "%120", "%121", "%122"
#define GF_WGMMA_REST_240 "%120", "%121", "%122", "%123", "%124", "%125", "%126"
#define GF_WGMMA_REST_248 "%124", "%125", "%126", "%127", "%128", "%129", "%130"
#define GF_WGMMA_REST_256 "%128", "%129", "%130", "%131", "%132", "%133", "%134"

#define GF_WGMMA_BOTH_SHARED(op, flags, d, a, b, accumulate, transpose_a, transpose_b, r5, r6)           \
    "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, " accumulate ", 0;\n"                             \
    "wgmma.mma_async.sync.aligned." op " {" d "}, " a ", " b ", accumulate, 1, 1"                         \
    flags(transpose_a, transpose_b) ";\n}"
#define GF_WGMMA_A_REGISTERS(op, flags, d, a0, a1, a2, a3, b, accumulate, transpose_b)                    \
    "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, " accumulate ", 0;\n"                             \
    "wgmma.mma_async.sync.aligned." op " {" d "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b                   \
    ", accumulate, 1, 1" flags(transpose_b) ";\n}"
#define GF_WGMMA_EXPAND(form, ...) form(__VA_ARGS__)

// Declares the products of operand type T, spelled as CUDA's headers do, at width N, for gf::wgmma<T, N>. At
// namespace scope, once for each shape of a kernel; N may be a macro.
//! Undefined: nothing; an N or T beyond the instruction's does not compile.
#define GF_WGMMA_SHAPE(T, N) GF_WGMMA_DECLARE(T, N)
#define GF_WGMMA_DECLARE(T, N)                                                                            \
    template <>                                                                                           \
    struct gf::WgmmaShape<T, N> {                                                                         \
        template <bool transpose_a, bool transpose_b>                                                     \
        static __device__ __forceinline__ void product(float (&acc)[N / 2], unsigned long long a,         \
                                                       unsigned long long b, bool accumulate) {           \
            asm volatile(GF_WGMMA_EXPAND(GF_WGMMA_BOTH_SHARED, GF_WGMMA_OP_##T(N),                        \
                                         GF_WGMMA_FLAGS2_##T, GF_WGMMA_TEXT_##N, GF_WGMMA_REST_##N)       \
                         : GF_WGMMA_ACC_##N                                                               \
                         : "l"(a), "l"(b), "r"(int(accumulate)), "n"(int(transpose_a)),                   \
                           "n"(int(transpose_b)));                                                        \
        }                                                                                                 \
        template <bool transpose_b>                                                                       \
        static __device__ __forceinline__ void product(float (&acc)[N / 2], const unsigned (&a)[4],       \
                                                       unsigned long long b, bool accumulate) {           \
            asm volatile(GF_WGMMA_EXPAND(GF_WGMMA_A_REGISTERS, GF_WGMMA_OP_##T(N),                        \
                                         GF_WGMMA_FLAGS1_##T, GF_WGMMA_TEXT_##N, GF_WGMMA_REST_##N)       \
                         : GF_WGMMA_ACC_##N                                                               \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate)),      \
                           "n"(int(transpose_b)));                                                        \
        }                                                                                                 \
    }
