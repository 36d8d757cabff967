#define grid_size_x 16
#define grid_size_y 8
#define grid_size_z 2
#define gf_threads 192
#define gf_block_y 1
#define gf_block_z 1
#define gf_point 0
#define kernel_tuner 1
#line 1
// Attention in registers: scores, probabilities and O never leave the fragments of mma.sync m16n8k16.
//
//   q, o [B, H, S_q, D]   k, v [B, H_kv, S_kv, D]   lse [B, H, S_q] or null
//   The last dim is contiguous; all other strides are arguments, in elements. H is a multiple of H_kv.
//   grid (ceil(S_q / tile_m) split_kv, H, B)
//   warps_m warps divide the rows among them, warps_n warps the keys of a KV tile, and split_kv blocks of a cluster the tiles
//
// The elements of Q K^T that a lane holds in its accumulator are the elements of P that it must supply to P V, so P is
// computed in place. Source: Dao, FlashAttention-2, arXiv 2307.08691, sections 3.1 and 3.3.
#include <cuda_fp16.h>

namespace gf {

// Start copying `bytes` (4, 8 or 16) from global to shared memory; the first `valid_bytes` come from the
// source, the rest of the destination becomes zero, and with 0 the source is not read at all. Both addresses
// are aligned to `bytes`. The destination is undefined until the copying thread's async_copy_wait, and for
// other threads until a barrier after it. PTX ISA, "Data Movement and Conversion Instructions: Non-bulk copy:
// cp.async".
template <int bytes>
__device__ __forceinline__ void async_copy(void* shared_destination, const void* global_source,
                                           int valid_bytes = bytes) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async moves 4, 8 or 16 bytes");
    const unsigned destination = static_cast<unsigned>(__cvta_generic_to_shared(shared_destination));
    if constexpr (bytes == 16) {
        // .cg keeps the line out of L1, which it would only pass through.
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(global_source),
                     "r"(valid_bytes)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(destination), "l"(global_source),
                     "n"(bytes), "r"(valid_bytes)
                     : "memory");
    }
}

// The same, all bytes or none.
template <int bytes>
__device__ __forceinline__ void async_copy(void* shared_destination, const void* global_source, bool valid) {
    async_copy<bytes>(shared_destination, global_source, valid ? bytes : 0);
}

// Close the group of copies that this thread started since the last commit. PTX ISA, "cp.async.commit_group".
__device__ __forceinline__ void async_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait until at most `groups_left_in_flight` of this thread's newest committed groups are unfinished. Copies
// that were never committed are not waited for. PTX ISA, "cp.async.wait_group / cp.async.wait_all".
template <int groups_left_in_flight>
__device__ __forceinline__ void async_copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(groups_left_in_flight) : "memory");
}

}  // namespace gf
namespace gf {

// Where a block stands in its thread block cluster. Ranks count x first, then y, then z. A kernel declares its
// clusters, __cluster_dims__(2, 1, 1) before its name, and its template's toml says the same: cluster = ["2",
// "1", "1"] under [[launches]]. Without one a block is a cluster of its own. Needs sm_90. PTX ISA, "%cluster_ctarank", "%cluster_nctarank".
__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ __forceinline__ unsigned cluster_blocks() {
    unsigned blocks;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    return blocks;
}

// The cluster's extent in blocks, the block's index in its cluster, and the cluster's index in the grid. PTX
// ISA, "%cluster_nctaid", "%cluster_ctaid", "%clusterid".
__device__ __forceinline__ uint3 cluster_size() {
    uint3 size;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size.x));
    asm("mov.u32 %0, %%cluster_nctaid.y;" : "=r"(size.y));
    asm("mov.u32 %0, %%cluster_nctaid.z;" : "=r"(size.z));
    return size;
}
__device__ __forceinline__ uint3 cluster_block_index() {
    uint3 index;
    asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(index.x));
    asm("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(index.y));
    asm("mov.u32 %0, %%cluster_ctaid.z;" : "=r"(index.z));
    return index;
}
__device__ __forceinline__ uint3 cluster_index() {
    uint3 index;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(index.x));
    asm("mov.u32 %0, %%clusterid.y;" : "=r"(index.y));
    asm("mov.u32 %0, %%clusterid.z;" : "=r"(index.z));
    return index;
}

// The cluster's barrier in two halves, run by every thread of every block in turn: what a thread wrote before
// it arrived is seen by all who have waited. Undefined when a thread arrives twice without waiting, or waits
// without having arrived. PTX ISA, "Parallel Synchronization and Communication Instructions:
// barrier.cluster".
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}

// The address, in the shared memory of the cluster's block `rank`, of what `pointer` is in the calling
// block's (distributed shared memory); it can be read, written and used by atomics. Undefined before the
// first cluster_sync (the other block may not have started), after that block's end, and for a rank beyond
// the cluster. PTX ISA, "Data Movement and Conversion Instructions: mapa".
template <class T>
__device__ __forceinline__ T* map_shared_rank(T* pointer, unsigned rank) {
    unsigned long long address;
    asm("mapa.u64 %0, %1, %2;"
        : "=l"(address)
        : "l"(reinterpret_cast<unsigned long long>(pointer)), "r"(rank));
    return reinterpret_cast<T*>(address);
}

}  // namespace gf
#include <cuda_bf16.h>

namespace gf {

// A float rounded to tf32 (8 exponent and 10 fraction bits), to nearest, ties away from zero, as the register
// that mma takes; a NaN becomes 0x7fffffff. Needs sm_80. PTX ISA, "cvt.rna.tf32.f32".
__device__ __forceinline__ unsigned to_tf32(float value) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

// Two floats rounded to nearest even in one register, `low` in its low half: what ldmatrix, stmatrix and mma
// move. Beyond the format's range they become infinite, a NaN becomes 0x7fff. Needs sm_80. PTX ISA,
// "cvt.rn.f16x2.f32", "cvt.rn.bf16x2.f32".
__device__ __forceinline__ unsigned pack_half2(float low, float high) {
    unsigned bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}
__device__ __forceinline__ unsigned pack_bfloat162(float low, float high) {
    unsigned bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

// The same, and what is below zero becomes +0 (a rectifier for free). PTX ISA, "cvt.rn.relu.f16x2.f32".
__device__ __forceinline__ unsigned pack_half2_relu(float low, float high) {
    unsigned bits;
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}
__device__ __forceinline__ unsigned pack_bfloat162_relu(float low, float high) {
    unsigned bits;
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

// The two halves of a packed register as floats, exactly; x is the low one.
__device__ __forceinline__ float2 unpack_half2(unsigned bits) {
    return __half22float2(*reinterpret_cast<const __half2*>(&bits));
}
__device__ __forceinline__ float2 unpack_bfloat162(unsigned bits) {
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&bits));
}

}  // namespace gf

namespace gf {

// One storage type's conversions; a new storage type adds one specialisation.
template <class T>
struct Dtype;

template <>
struct Dtype<float> {
    using Pair = float2;
    static __device__ __forceinline__ float to_float(float value) { return value; }
    static __device__ __forceinline__ float from_float(float value) { return value; }
    static __device__ __forceinline__ float2 to_float2(float2 pair) { return pair; }
    static __device__ __forceinline__ float2 from_float2(float2 pair) { return pair; }
};

template <>
struct Dtype<__half> {
    using Pair = __half2;
    static __device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
    static __device__ __forceinline__ __half from_float(float value) { return __float2half_rn(value); }
    static __device__ __forceinline__ float2 to_float2(__half2 pair) { return __half22float2(pair); }
    static __device__ __forceinline__ __half2 from_float2(float2 pair) { return __float22half2_rn(pair); }
};

template <>
struct Dtype<__nv_bfloat16> {
    using Pair = __nv_bfloat162;
    static __device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
    static __device__ __forceinline__ __nv_bfloat16 from_float(float value) {
        return __float2bfloat16_rn(value);
    }
    static __device__ __forceinline__ float2 to_float2(__nv_bfloat162 pair) {
        return __bfloat1622float2(pair);
    }
    static __device__ __forceinline__ __nv_bfloat162 from_float2(float2 pair) {
        return __float22bfloat162_rn(pair);
    }
};

// Two neighbouring elements of T as one register: __half2, __nv_bfloat162, float2.
template <class T>
using pair = typename Dtype<T>::Pair;

// Exact.
template <class T>
__device__ __forceinline__ float to_float(T value) {
    return Dtype<T>::to_float(value);
}

// Rounded to nearest even; beyond the format's range it becomes infinite.
template <class T>
__device__ __forceinline__ T from_float(float value) {
    return Dtype<T>::from_float(value);
}

// The same for two elements at once; x is the one at the lower address.
template <class T>
__device__ __forceinline__ float2 to_float2(pair<T> value) {
    return Dtype<T>::to_float2(value);
}
template <class T>
__device__ __forceinline__ pair<T> from_float2(float2 value) {
    return Dtype<T>::from_float2(value);
}

}  // namespace gf
namespace gf {

// Load 1, 2 or 4 matrices of 8 x 8 16-bit elements from shared memory, the whole warp together. Lane 8 m + r
// gives the 16-byte aligned address of row r of matrix m (lanes beyond 8 count: ignored). Register m of lane
// l gets elements (l / 4, 2 (l % 4)) and (l / 4, 2 (l % 4) + 1) of matrix m, the first in its low half.
// Undefined unless all 32 lanes run it together. PTX ISA, "Warp-level matrix load instruction: ldmatrix".
template <int count>
__device__ __forceinline__ void ldmatrix(unsigned (&registers)[count], const void* row) {
    static_assert(count == 1 || count == 2 || count == 4, "ldmatrix loads 1, 2 or 4 matrices");
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if constexpr (count == 1) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                     : "=r"(registers[0])
                     : "r"(address)
                     : "memory");
    } else if constexpr (count == 2) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(registers[0]), "=r"(registers[1])
                     : "r"(address)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                     : "r"(address)
                     : "memory");
    }
}

// The same with every matrix transposed: register m of lane l gets elements (2 (l % 4), l / 4) and (2 (l % 4)
// + 1, l / 4).
template <int count>
__device__ __forceinline__ void ldmatrix_transposed(unsigned (&registers)[count], const void* row) {
    static_assert(count == 1 || count == 2 || count == 4, "ldmatrix loads 1, 2 or 4 matrices");
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if constexpr (count == 1) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                     : "=r"(registers[0])
                     : "r"(address)
                     : "memory");
    } else if constexpr (count == 2) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(registers[0]), "=r"(registers[1])
                     : "r"(address)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                     : "r"(address)
                     : "memory");
    }
}

}  // namespace gf
namespace gf {

// No mask: each of S_q query rows sees all of S_kv keys.
struct Mask {
    static __device__ __forceinline__ int visible_keys(int row, int S_q, int S_kv) { return S_kv; }
};

}  // namespace gf

namespace gf {

// Approximations of one special-function instruction each. Stated errors are PTX ISA's bounds on the device;
// the emulator gives the rounded exact value, so results agree within them and not bit for bit. All but
// tanh_approx take subnormal inputs for zeros and give zeros for subnormal results, with their sign.

// 2^x; relative error 2^-22; -inf gives +0, NaN a NaN. PTX ISA, "ex2.approx.ftz.f32".
__device__ __forceinline__ float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Two of them in half precision; relative error 2^-9.9, subnormals kept. PTX ISA, "ex2.approx.f16x2" (sm_75).
__device__ __forceinline__ __half2 exp2_approx(__half2 x) {
    __half2 y;
    asm("ex2.approx.f16x2 %0, %1;"
        : "=r"(*reinterpret_cast<unsigned*>(&y))
        : "r"(*reinterpret_cast<const unsigned*>(&x)));
    return y;
}

// log2(x); absolute error 2^-22 between 0.5 and 2, relative error 2^-22 elsewhere; 0 gives -inf, below zero a
// NaN. PTX ISA, "lg2.approx.ftz.f32".
__device__ __forceinline__ float log2_approx(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1 / x; error 1 ulp; a zero gives the infinity of its sign. PTX ISA, "rcp.approx.ftz.f32".
__device__ __forceinline__ float reciprocal_approx(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1 / sqrt(x); relative error 2^-22.9; a zero gives the infinity of its sign. PTX ISA,
// "rsqrt.approx.ftz.f32".
__device__ __forceinline__ float rsqrt_approx(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// sqrt(x); relative error 2^-23. PTX ISA, "sqrt.approx.ftz.f32".
__device__ __forceinline__ float sqrt_approx(float x) {
    float y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// tanh(x); relative error 2^-11. PTX ISA, "tanh.approx.f32" (sm_75).
__device__ __forceinline__ float tanh_approx(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Two of them in half precision; absolute error 2^-10.987. PTX ISA, "tanh.approx.f16x2" (sm_75).
__device__ __forceinline__ __half2 tanh_approx(__half2 x) {
    __half2 y;
    asm("tanh.approx.f16x2 %0, %1;"
        : "=r"(*reinterpret_cast<unsigned*>(&y))
        : "r"(*reinterpret_cast<const unsigned*>(&x)));
    return y;
}

}  // namespace gf

namespace gf {

// d += a * b on one warp: a is 16 x 16 (row major), b is 16 x 8 (column major), d is 16 x 8 in float; T is
// __half or __nv_bfloat16. With g = lane / 4 and t = lane % 4, low half first:
//   a[0] = A[g][2t..], a[1] = A[g + 8][2t..], a[2] = A[g][2t + 8..], a[3] = A[g + 8][2t + 8..]
//   b0 = B[2t..][g], b1 = B[2t + 8..][g];  d[0..1] = D[g][2t..], d[2..3] = D[g + 8][2t..]
// Undefined unless all 32 lanes run it together. PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating
// point type".
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);

template <>
__device__ __forceinline__ void mma_m16n8k16<__half>(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                                     unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(float (&d)[4], const unsigned (&a)[4],
                                                            unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace gf
namespace gf {

// The largest `value` among each aligned group of `width` neighbouring lanes (a power of two), in every lane
// of it. Undefined unless all 32 lanes run it together. CUDA C++ Programming Guide, "Warp Shuffle Functions".
template <int width = 32>
__device__ __forceinline__ float warp_max(float value) {
    static_assert(width >= 1 && width <= 32 && (width & (width - 1)) == 0,
                  "width is a power of two up to 32");
#pragma unroll
    for (int distance = width / 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
    return value;
}

// The sum of `value` over each aligned group of `width` neighbouring lanes, in every lane of it, in one fixed
// order.
template <int width = 32>
__device__ __forceinline__ float warp_sum(float value) {
    static_assert(width >= 1 && width <= 32 && (width & (width - 1)) == 0,
                  "width is a power of two up to 32");
#pragma unroll
    for (int distance = width / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

}  // namespace gf
// Declares `Type* name`, the block's dynamic shared memory, 128-byte aligned. Its size is the launch's; its
// content is undefined until written. Two uses in one kernel name the same bytes.
#define GF_DYNAMIC_SHARED(Type, name)                                         \
    extern __shared__ __align__(128) unsigned char gf_dynamic_shared_bytes[]; \
    Type* name = reinterpret_cast<Type*>(gf_dynamic_shared_bytes)
// Parts of a softmax whose exponentials are powers of two.

namespace gf {

// -infinity: the score of a key that a row does not see.
__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

// The natural logarithm of a row's sum of exponentials, from the maximum of its scores (in units of ln 2) and from the
// sum of 2^(score - maximum). It is -infinity for a row that saw no key, whose maximum is -infinity and whose sum is 0.
__device__ __forceinline__ float log_sum(float maximum, float sum)
{
    return (maximum + log2f(sum)) * 0.6931471805599453f;
}

}  // namespace gf

using Element = __half;

constexpr int head_dim = 64;
constexpr int tile_m = 192;           // query rows of a block
constexpr int tile_n = 80;           // keys of a KV tile
constexpr int warps_m = 6, warps_n = 1;
constexpr int threads = 192;
constexpr int split_kv = 8;                // blocks of a cluster on the same rows
constexpr int pipeline_depth = 1;    // KV tiles in shared memory at once

// The share of one warp: rows in fragments of 16, keys of a tile and columns of O in fragments of 8.
constexpr int row_fragments = 2;
constexpr int warp_keys = tile_n / warps_n;
constexpr int key_fragments = warp_keys / 8;
constexpr int column_fragments = head_dim / 8;
constexpr int depth_steps = head_dim / 16;     // of Q K^T: 16 of a head's elements each

constexpr int chunk_elements = 8;              // 16 bytes, which one copy or one row of ldmatrix moves
constexpr int row_chunks = head_dim / chunk_elements;
constexpr int copy_lanes = 8;                  // neighbouring threads that copy a row; the swizzle permutes so many chunks
constexpr int row_stride = 72;          // of a tile's rows in shared memory, in elements

// Rows [count, head_dim] of one head in global memory; stride in elements.
struct Rows { const Element* first; long long stride; int count; };

// Fragments of one warp. Of each fragment of 16 x 8 elements, lane l holds rows l / 4 and l / 4 + 8, and columns
// 2 (l % 4) and 2 (l % 4) + 1. Element 2 h + c of an accumulator is row l / 4 + 8 h, column 2 (l % 4) + c.
using Scores = float[row_fragments][key_fragments][4];         // [16 row_fragments, warp_keys]
using Output = float[row_fragments][column_fragments][4];      // [16 row_fragments, head_dim]
using Query = unsigned[row_fragments][depth_steps][4];         // [16 row_fragments, head_dim]

// Running softmax of the two rows that a lane has of each row fragment. The sum covers the lane's own keys only.
struct Softmax { float maximum[row_fragments][2], sum[row_fragments][2]; };

union Chunk { uint4 bits; Element element[chunk_elements]; };

using Mask = gf::Mask;

// The place of a 16-byte chunk of a tile's row, in elements. Unsigned, so that a remainder is a few bits.
__device__ __forceinline__ unsigned place(unsigned row, unsigned chunk)
{
    return row * row_stride + chunk * chunk_elements;
}

// From the place of chunk 0 or 1 of a row to the place an even number of chunks to its right. Each step along a row thus
// takes one instruction; computing the place anew takes ten.
__device__ __forceinline__ unsigned to_the_right(unsigned place, unsigned chunks)
{
    return place + chunks * chunk_elements;
}

// Start copying rows first_row ... of source into tile [rows, head_dim]; rows that do not exist become 0. A thread
// copies every rows_at_once-th row and every copy_lanes-th chunk of it, so its places lie at constant distances.
template <int rows>
__device__ __forceinline__ void load_tile(Element* tile, Rows source, int first_row)
{
    constexpr unsigned rows_at_once = threads / copy_lanes;
    const unsigned row = threadIdx.x / copy_lanes, chunk = threadIdx.x % copy_lanes;
    const int left = source.count - first_row - static_cast<int>(row);
    const Element* from = source.first + (first_row + static_cast<long long>(row)) * source.stride + chunk * chunk_elements;
#pragma unroll
    for (unsigned round = 0; round < rows; round += rows_at_once, from += rows_at_once * source.stride)
        if (rows % rows_at_once == 0 || row + round < rows)
#pragma unroll
            for (unsigned right = 0; right < row_chunks; right += copy_lanes)
                gf::async_copy<16>(tile + place(row + round, chunk + right), from + right * chunk_elements,
                                   static_cast<int>(round) < left ? 16 : 0);
}

// The place of tile `tile` of K or V in its ring, in elements.
__device__ __forceinline__ unsigned slot(int tile)
{
    return static_cast<unsigned>(tile) % pipeline_depth * (tile_n * row_stride);
}

// Start copying tile `tile` of K or V into its slot, if there is one.
__device__ __forceinline__ void start_tile(Element* tiles, Rows rows, int first_key, int tile, int tile_count)
{
    if (tile < tile_count)
        load_tile<tile_n>(tiles + slot(tile), rows, first_key + tile * tile_n);
}

// Start copying a KV tile. A wait counts the groups that were committed later, so past the last tile
// groups are empty.
__device__ __forceinline__ void start_kv_tile(Element* k_tiles, Element* v_tiles, Rows k, Rows v, int first_key,
                                              int tile, int tile_count)
{
    start_tile(k_tiles, k, first_key, tile, tile_count);
    start_tile(v_tiles, v, first_key, tile, tile_count);
    gf::async_copy_commit();
}

// q = this warp's rows of Q, two elements per load. Rows past S_q are 0.
__device__ __forceinline__ void load_query(Query& q, Rows source, int first_row)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < row_fragments; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + i * 16 + lane / 4 + half * 8;
            const Element* from = source.first + min(row, source.count - 1) * source.stride + lane % 4 * 2;
#pragma unroll
            for (int d = 0; d < depth_steps; ++d)
#pragma unroll
                for (int right = 0; right < 2; ++right) {
                    const unsigned bits = *reinterpret_cast<const unsigned*>(from + d * 16 + right * 8);
                    q[i][d][right * 2 + half] = row < source.count ? bits : 0u;
                }
        }
}

// scores = q k^T over this warp's keys of k_tile [tile_n, head_dim].
__device__ __forceinline__ void multiply_q_k(Scores& scores, const Query& q, const Element* k_tile, int first_key)
{
    // The columns of k^T are the rows of the tile, so nothing is transposed. Each load brings two fragments of 8 keys, both
    // halves of the step.
    const unsigned lane = threadIdx.x % 32;
    const unsigned k_place = place(first_key + lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (int i = 0; i < row_fragments; ++i)
#pragma unroll
        for (int j = 0; j < key_fragments; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                scores[i][j][e] = 0.0f;
#pragma unroll
    for (int d = 0; d < depth_steps; ++d) {
#pragma unroll
        for (int j = 0; j < key_fragments; j += 2) {
            unsigned k[4];
            gf::ldmatrix<4>(k, k_tile + to_the_right(k_place, d * 2) + j * 8 * row_stride);
#pragma unroll
            for (int i = 0; i < row_fragments; ++i) {
                gf::mma_m16n8k16<Element>(scores[i][j], q[i][d], k[0], k[1]);
                gf::mma_m16n8k16<Element>(scores[i][j + 1], q[i][d], k[2], k[3]);
            }
        }
    }
}

// Scores of keys that a row does not see become -infinity. The fragments begin at first_row and first_key.
__device__ __forceinline__ void mask_scores(Scores& scores, int first_row, int first_key, int S_q, int S_kv)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < row_fragments; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + i * 16 + lane / 4 + half * 8;
            const int visible = Mask::visible_keys(min(row, S_q - 1), S_q, S_kv) - first_key - lane % 4 * 2;
#pragma unroll
            for (int j = 0; j < key_fragments; ++j)
#pragma unroll
                for (int c = 0; c < 2; ++c)
                    if (j * 8 + c >= visible)
                        scores[i][j][half * 2 + c] = gf::minus_infinity();
        }
}

// The state before the first key.
__device__ __forceinline__ void start(Softmax& softmax, Output& o)
{
#pragma unroll
    for (int i = 0; i < row_fragments; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            softmax.maximum[i][half] = gf::minus_infinity();
            softmax.sum[i][half] = 0.0f;
        }
#pragma unroll
        for (int j = 0; j < column_fragments; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                o[i][j][e] = 0.0f;
    }
}

// Replace scores by p = exp2(scale * scores - maximum), and rescale the sums that were made under an older maximum.
__device__ __forceinline__ void update(Softmax& softmax, Output& o, Scores& scores, float scale)
{
#pragma unroll
    for (int i = 0; i < row_fragments; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float largest = fmaxf(scores[i][0][half * 2], scores[i][0][half * 2 + 1]);
#pragma unroll
            for (int j = 1; j < key_fragments; ++j)
                largest = fmaxf(largest, fmaxf(scores[i][j][half * 2], scores[i][j][half * 2 + 1]));
            largest = gf::warp_max<4>(largest) * scale;           // of the four lanes that share a row
            const float before = softmax.maximum[i][half];
            const float maximum = fmaxf(before, largest);
            // Before the first visible key the maximum is -infinity, and -infinity minus itself would be NaN.
            const float shift = maximum == gf::minus_infinity() ? 0.0f : maximum;
            {
                const float shrink = gf::exp2_approx(before - shift);
                softmax.sum[i][half] *= shrink;
#pragma unroll
                for (int j = 0; j < column_fragments; ++j) {
                    o[i][j][half * 2] *= shrink;
                    o[i][j][half * 2 + 1] *= shrink;
                }
            }
            softmax.maximum[i][half] = maximum;
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < key_fragments; ++j)
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                    float& score = scores[i][j][half * 2 + c];
                    score = gf::exp2_approx(fmaf(score, scale, -shift));
                    sum += score;
                }
            softmax.sum[i][half] += sum;
        }
}

// o += p v over this warp's keys of v_tile [tile_n, head_dim].
__device__ __forceinline__ void multiply_p_v(Output& o, const Scores& p, const Element* v_tile, int first_key)
{
    const unsigned lane = threadIdx.x % 32, v_place = place(first_key + lane % 16, lane / 16);
#pragma unroll
    for (int step = 0; step < warp_keys / 16; ++step) {
        unsigned a[row_fragments][4];
#pragma unroll
        for (int i = 0; i < row_fragments; ++i)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float* pair = &p[i][step * 2 + e / 2][e % 2 * 2];
                a[i][e] = gf::pack_half2(pair[0], pair[1]);
            }
#pragma unroll
        for (int j = 0; j < column_fragments; j += 2) {
            unsigned v[4];                   // 16 keys, two fragments of 8 columns
            gf::ldmatrix_transposed<4>(v, v_tile + to_the_right(v_place, j) + step * 16 * row_stride);
#pragma unroll
            for (int i = 0; i < row_fragments; ++i) {
                gf::mma_m16n8k16<Element>(o[i][j], a[i], v[0], v[1]);
                gf::mma_m16n8k16<Element>(o[i][j + 1], a[i], v[2], v[3]);
            }
        }
    }
}

// Add up the sums of the four lanes that share a row.
__device__ __forceinline__ void finish_sums(Softmax& softmax)
{
#pragma unroll
    for (int i = 0; i < row_fragments; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            softmax.sum[i][half] = gf::warp_sum<4>(softmax.sum[i][half]);
}

// The sums to which all warps of a cluster add. They overwrite the tiles. Each block holds the sums of its share of the rows.
constexpr int owned_rows = tile_m / split_kv;
constexpr int sum_stride = head_dim + 8;       // of a row of floats
struct Sums {
    float* o;              // [owned_rows, head_dim]
    float* sum;            // [owned_rows]
    float* row_maximum;    // [owned_rows], of all warps
    float* maximum;        // [warps_n, tile_m], of this block's warps
};

__device__ __forceinline__ float common_maximum(const Sums& sums, int row)
{
    float maximum = gf::minus_infinity();
#pragma unroll
    for (int part = 0; part < split_kv * warps_n; ++part)
        maximum = fmaxf(maximum, gf::map_shared_rank(sums.maximum, part / warps_n)[part % warps_n * tile_m + row]);
    return maximum;
}

// Set the sums to 0, and store the maxima of this warp's rows.
__device__ __forceinline__ void start_sums(const Sums& sums, const Softmax& softmax, int first_row, int warp_n)
{
    const int lane = threadIdx.x % 32;
    for (int i = threadIdx.x; i < owned_rows * (sum_stride + 1); i += threads)
        sums.o[i] = 0.0f;                      // and sums.sum, which lies behind it
#pragma unroll
    for (int i = 0; i < row_fragments; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (lane % 4 == 0)
                sums.maximum[warp_n * tile_m + first_row + i * 16 + lane / 4 + half * 8] = softmax.maximum[i][half];
}

// The order of the additions varies, so the last bits differ from run to run.
__device__ __forceinline__ void add_part(const Sums& sums, const Output& o, const Softmax& softmax, int first_row)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < row_fragments; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + i * 16 + lane / 4 + half * 8, owner = row / owned_rows;
            const float maximum = common_maximum(sums, row);
            const float factor = gf::exp2_approx(softmax.maximum[i][half] - (maximum == gf::minus_infinity() ? 0.0f : maximum));
            float* to = gf::map_shared_rank(sums.o, owner) + row % owned_rows * sum_stride + lane % 4 * 2;
#pragma unroll
            for (int j = 0; j < column_fragments; ++j)
#pragma unroll
                for (int c = 0; c < 2; ++c)
                    atomicAdd(to + j * 8 + c, o[i][j][half * 2 + c] * factor);
            if (lane % 4 == 0)
                atomicAdd(gf::map_shared_rank(sums.sum, owner) + row % owned_rows, softmax.sum[i][half] * factor);
        }
}

// Write this block's share of rows first_row ... of o in 16-byte stores. Rows past S_q are not written.
__device__ __forceinline__ void store_sums(Element* o, long long o_row_stride, float* lse, const Sums& sums,
                                           int first_row, int S_q)
{
    for (int i = threadIdx.x; i < owned_rows * row_chunks; i += threads) {
        const int row = i / row_chunks, column = i % row_chunks * chunk_elements;
        if (first_row + row >= S_q)
            break;
        const float sum = sums.sum[row], factor = sum > 0.0f ? 1.0f / sum : 0.0f;
        Chunk chunk;
#pragma unroll
        for (int e = 0; e < chunk_elements; ++e)
            chunk.element[e] = gf::from_float<Element>(sums.o[row * sum_stride + column + e] * factor);
        *reinterpret_cast<uint4*>(o + (first_row + row) * o_row_stride + column) = chunk.bits;
        if (lse != nullptr && column == 0)
            lse[first_row + row] = gf::log_sum(sums.row_maximum[row], sum);
    }
}

extern "C" __global__ void __cluster_dims__(8, 1, 1) __launch_bounds__(threads, 1)
attention_mma(const Element* __restrict__ q, const Element* __restrict__ k, const Element* __restrict__ v,
              Element* __restrict__ o, float* __restrict__ lse,
              int H, int H_kv, int S_q, int S_kv, float scale,
              long long q_batch_stride, long long q_head_stride, long long q_row_stride,
              long long k_batch_stride, long long k_head_stride, long long k_row_stride,
              long long v_batch_stride, long long v_head_stride, long long v_row_stride,
              long long o_batch_stride, long long o_head_stride, long long o_row_stride)
{
    const int batch = blockIdx.z, head = blockIdx.y, kv_head = head / (H / H_kv);
    const Rows q_rows = {q + batch * q_batch_stride + head * q_head_stride, q_row_stride, S_q};
    const Rows k_rows = {k + batch * k_batch_stride + kv_head * k_head_stride, k_row_stride, S_kv};
    const Rows v_rows = {v + batch * v_batch_stride + kv_head * v_head_stride, v_row_stride, S_kv};
    o += batch * o_batch_stride + head * o_head_stride;
    lse += lse == nullptr ? 0 : (static_cast<long long>(batch) * H + head) * S_q;

    GF_DYNAMIC_SHARED(unsigned char, shared);
    Element* k_tiles = reinterpret_cast<Element*>(shared + 0);        // [pipeline_depth, tile_n, head_dim]
    Element* v_tiles = reinterpret_cast<Element*>(shared + 11520);       // [pipeline_depth, tile_n, head_dim]

    const int warp_m = threadIdx.x / 32 / warps_n, warp_n = threadIdx.x / 32 % warps_n;
    const int warp_row = warp_m * row_fragments * 16, warp_key = warp_n * warp_keys;     // in the block's tile
    const int row_tile = blockIdx.x / split_kv, first_row = row_tile * tile_m;
    const int block_end = Mask::visible_keys(min(first_row + tile_m, S_q) - 1, S_q, S_kv);  // the last row sees the most
    const int warp_begin = Mask::visible_keys(min(first_row + warp_row, S_q - 1), S_q, S_kv);  // a warp's first row the fewest
    const int share = ((block_end + tile_n - 1) / tile_n + split_kv - 1) / split_kv;           // tiles of a block
    const int rank = gf::cluster_rank(), first_key = rank * share * tile_n;
    const int tile_count = max(min((block_end - first_key + tile_n - 1) / tile_n, share), 0);
    const float scale_log2 = scale * 1.4426950408889634f;     // exp(x) = exp2(x log2(e)); exp2 is in hardware

    start_kv_tile(k_tiles, v_tiles, k_rows, v_rows, first_key, 0, tile_count);
    Softmax softmax;
    Output o_part;
    start(softmax, o_part);
    Query q_part;
    load_query(q_part, q_rows, first_row + warp_row);

    for (int tile = 0; tile < tile_count; ++tile) {
        gf::async_copy_wait<0>();             // k and v are here
        __syncthreads();
        Scores scores;
        multiply_q_k(scores, q_part, k_tiles + slot(tile), warp_key);
        if (first_key + (tile + 1) * tile_n > warp_begin)
            mask_scores(scores, first_row + warp_row, first_key + tile * tile_n + warp_key, S_q, S_kv);
        update(softmax, o_part, scores, scale_log2);
        multiply_p_v(o_part, scores, v_tiles + slot(tile), warp_key);
        __syncthreads();
        start_kv_tile(k_tiles, v_tiles, k_rows, v_rows, first_key, tile + 1, tile_count);    // in this one's place
    }

    finish_sums(softmax);
    gf::async_copy_wait<0>();
    __syncthreads();
    float* sums_at = reinterpret_cast<float*>(shared);
    const Sums sums = {sums_at, sums_at + owned_rows * sum_stride, sums_at + owned_rows * (sum_stride + 1),
                       sums_at + owned_rows * (sum_stride + 2)};
    start_sums(sums, softmax, warp_row, warp_n);
    gf::cluster_sync();
    if (threadIdx.x < owned_rows)
        sums.row_maximum[threadIdx.x] = common_maximum(sums, rank * owned_rows + threadIdx.x);
    add_part(sums, o_part, softmax, warp_row);
    gf::cluster_sync();                          // all parts are added, and no block reads another's maxima any more
    store_sums(o, o_row_stride, lse, sums, first_row + rank * owned_rows, S_q);
}
