// Attention on WMMA fragments: tensor cores compute Q K^T and P V. The softmax between them reads the scores from shared
// memory, or works on the accumulators.
//
//   q, o [B, H, S_q, D]   k, v [B, H_kv, S_kv, D]   lse [B, H, S_q] or null
//   The last dim is contiguous; all other strides are arguments, in elements. H is a multiple of H_kv.
//   warps_m x warps_n warps divide the fragments of both products among them, for tile_m rows of one head
//   grid (ceil(S_q / tile_m), H, B)
#include <cuda_fp16.h>
#include <mma.h>

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
#include <cuda_bf16.h>

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

// No mask: each of S_q query rows sees all of S_kv keys.
struct Mask {
    static __device__ __forceinline__ int visible_keys(int row, int S_q, int S_kv) { return S_kv; }
};

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

namespace wmma = nvcuda::wmma;
using Element = __half;

constexpr int head_dim = 64;
constexpr int tile_m = 32;           // query rows of a block
constexpr int tile_n = 32;           // keys of a KV tile
constexpr int warps_m = 2, warps_n = 2;
constexpr int threads = 128;
constexpr int pipeline_depth = 2;    // KV tiles in shared memory at once
constexpr int softmax_lanes = 8;     // neighbouring lanes that share a row in the softmax

// One warp's share of each product, in fragments of 16 x 16.
constexpr int row_fragments = tile_m / warps_m / 16;
constexpr int key_fragments = tile_n / warps_n / 16;
constexpr int column_fragments = head_dim / warps_n / 16;

// 16 bytes, the largest access.
constexpr int vector_elements = 8;
struct alignas(16) Vector { Element element[vector_elements]; };

// Padding behind each row of a tile: elements of q, k and v; elements of p; floats.
constexpr int padding = 8, padding_p = 8, padding_float = 4;
constexpr int stride_score = tile_n + padding_float;
constexpr int stride_p = tile_n + padding_p;
constexpr int stride_o = head_dim + padding_float;
constexpr int k_slot = 2304, v_slot = 2304;     // elements of a tile of k and v

// The block's tiles in shared memory.
struct Tiles {
    Element* q;        // [tile_m, head_dim]
    Element* k;        // [pipeline_depth, tile_n, head_dim]
    Element* v;        // [pipeline_depth, tile_n, head_dim]
    float* scores;     // [tile_m, tile_n]
    Element* p;        // [tile_m, tile_n]
    float* o;          // [tile_m, head_dim]
    float* factor;     // [tile_m], by which each row of o is multiplied next
};

// Rows [count, head_dim] of one head in global memory; stride in elements.
struct Rows { const Element* first; long long stride; int count; };

using FragmentQ = wmma::fragment<wmma::matrix_a, 16, 16, 16, Element, wmma::row_major>;
using FragmentK = wmma::fragment<wmma::matrix_b, 16, 16, 16, Element, wmma::col_major>;     // K^T
using FragmentP = FragmentQ;
using FragmentV = wmma::fragment<wmma::matrix_b, 16, 16, 16, Element, wmma::row_major>;
using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

// The softmax of the rows that this thread helps with, over the keys so far.
constexpr int rows_per_pass = threads / softmax_lanes;
constexpr int passes = (tile_m + rows_per_pass - 1) / rows_per_pass;
struct SoftmaxState {
    float maximum[passes];     // of the scaled scores; -infinity before the first visible key
    float sum[passes];         // of p = exp2(score - maximum)
};

using Mask = gf::Mask;

__device__ Tiles place_tiles(unsigned char* shared)
{
    Tiles tiles;
    tiles.q = reinterpret_cast<Element*>(shared);
    tiles.k = reinterpret_cast<Element*>(shared + 4608);
    tiles.v = reinterpret_cast<Element*>(shared + 13824);
    tiles.scores = reinterpret_cast<float*>(shared + 23040);
    tiles.p = reinterpret_cast<Element*>(shared + 27648);
    tiles.o = reinterpret_cast<float*>(shared + 30208);
    tiles.factor = reinterpret_cast<float*>(shared + 38912);
    return tiles;
}

// Where an element of q, k or v lies in a tile with rows of `columns` elements.
template <int columns>
__device__ int place(int row, int column)
{
    return row * (columns + padding) + column;
}

// The fragment that begins at (row, column) of such a tile.
template <int columns, class Fragment>
__device__ void load_fragment(Fragment& fragment, const Element* tile, int row, int column)
{
    wmma::load_matrix_sync(fragment, tile + place<columns>(row, column), columns + padding);
}

// Start copying rows first_row ... of source into tile [rows, head_dim]; rows that do not exist become 0.
template <int rows>
__device__ void load_tile(Element* tile, Rows source, int first_row)
{
    constexpr int row_vectors = head_dim / vector_elements;
    for (int i = threadIdx.x; i < rows * row_vectors; i += threads) {
        const int row = i / row_vectors, column = i % row_vectors * vector_elements;
        const bool exists = first_row + row < source.count;
        const Element* from = source.first + (exists ? first_row + row : 0) * source.stride + column;
        gf::async_copy<16>(tile + place<head_dim>(row, column), from, exists ? 16 : 0);
    }
}

// Start copying a KV tile into its slot. A wait counts the groups that were committed later, so past the
// last tile groups are empty.
__device__ void start_kv_tile(const Tiles& tiles, Rows k, Rows v, int tile, int tile_count)
{
    const int slot = tile % pipeline_depth;
    if (tile < tile_count)
        load_tile<tile_n>(tiles.k + slot * k_slot, k, tile * tile_n);
    if (tile < tile_count)
        load_tile<tile_n>(tiles.v + slot * v_slot, v, tile * tile_n);
    gf::async_copy_commit();
}

// scores [tile_m, tile_n] = q k^T: this warp's fragments of it.
__device__ void multiply_q_k(float* scores, const Element* q_tile, const Element* k_tile,
                             int warp_m, int warp_n)
{
#pragma unroll
    for (int i = 0; i < row_fragments; ++i) {
        const int row = (warp_m * row_fragments + i) * 16;
        Accumulator score[key_fragments];
#pragma unroll
        for (int j = 0; j < key_fragments; ++j)
            wmma::fill_fragment(score[j], 0.0f);
#pragma unroll
        for (int d = 0; d < head_dim / 16; ++d) {
            FragmentQ q;
            load_fragment<head_dim>(q, q_tile, row, d * 16);
#pragma unroll
            for (int j = 0; j < key_fragments; ++j) {
                const int key = (warp_n * key_fragments + j) * 16;
                FragmentK k;
                load_fragment<head_dim>(k, k_tile, key, d * 16);
                wmma::mma_sync(score[j], q, k, score[j]);
            }
        }
#pragma unroll
        for (int j = 0; j < key_fragments; ++j) {
            const int key = (warp_n * key_fragments + j) * 16;
            wmma::store_matrix_sync(scores + row * stride_score + key, score[j], stride_score,
                                    wmma::mem_row_major);
        }
    }
}

// The state before the first key.
__device__ SoftmaxState start_softmax()
{
    SoftmaxState state = {};
#pragma unroll
    for (int pass = 0; pass < passes; ++pass)
        state.maximum[pass] = gf::minus_infinity();
    return state;
}

// One row: p = exp2(scale * score - maximum) for the keys before `visible`, 0 for the others.
// Returns the factor that rescales the sums made under the old maximum.
__device__ float softmax_row(float& row_maximum, float& row_sum, const float* scores, Element* p, int visible,
                             float scale, int lane)
{
    constexpr int lane_keys = tile_n / softmax_lanes;
    float score[lane_keys];
    float maximum = row_maximum;
#pragma unroll
    for (int i = 0; i < lane_keys; ++i) {
        const int key = lane + i * softmax_lanes;
        score[i] = key < visible ? scores[key] : gf::minus_infinity();
        maximum = fmaxf(maximum, score[i] * scale);
    }
    maximum = gf::warp_max<softmax_lanes>(maximum);
    // Before the first visible key the maximum is -infinity, and -infinity minus itself would be NaN.
    const float shift = maximum == gf::minus_infinity() ? 0.0f : maximum;
    const float factor = exp2f(row_maximum - shift);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < lane_keys; ++i) {
        const float weight = exp2f(fmaf(score[i], scale, -shift));
        sum += weight;
        p[lane + i * softmax_lanes] = gf::from_float<Element>(weight);
    }
    row_maximum = maximum;
    row_sum = row_sum * factor + gf::warp_sum<softmax_lanes>(sum);
    return factor;
}

// The whole tile: p [tile_m, tile_n] from scores, and factor [tile_m] for the rows of o.
__device__ void softmax(SoftmaxState& state, const float* scores, Element* p_tile, float* factor,
                        int first_row, int first_key, int S_q, int S_kv, float scale)
{
    const int lane = threadIdx.x % softmax_lanes;
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
        const int row = pass * rows_per_pass + threadIdx.x / softmax_lanes;
        if (row >= tile_m)      // true or false for a whole warp
            break;
        const int visible = Mask::visible_keys(min(first_row + row, S_q - 1), S_q, S_kv) - first_key;
        const float shrink = softmax_row(state.maximum[pass], state.sum[pass], scores + row * stride_score,
                                         p_tile + row * stride_p, visible, scale, lane);
        if (lane == 0)
            factor[row] = shrink;
    }
}

// o [tile_m, head_dim] = 0, by the whole block.
__device__ void clear(float* o_tile)
{
    for (int i = threadIdx.x; i < tile_m * stride_o; i += threads)
        o_tile[i] = 0.0f;
}

// sum *= factor, for fragment i of this warp's rows.
__device__ void shrink_rows(Accumulator (&sum)[column_fragments], const float* factor, int i, int warp_m)
{
    // With a stride of 0, each column of this fragment is factor[row ... row + 15].
    const int row = (warp_m * row_fragments + i) * 16;
    Accumulator shrink;
    wmma::load_matrix_sync(shrink, factor + row, 0, wmma::mem_col_major);
#pragma unroll
    for (int j = 0; j < column_fragments; ++j)
#pragma unroll
        for (int e = 0; e < sum[j].num_elements; ++e)
            sum[j].x[e] *= shrink.x[e];
}

// o = factor * o + p v, for this warp's fragments of o [tile_m, head_dim].
__device__ void multiply_p_v(float* o_tile, const Element* p_tile, const Element* v_tile,
                             const float* factor, int warp_m, int warp_n)
{
#pragma unroll
    for (int i = 0; i < row_fragments; ++i) {
        const int row = (warp_m * row_fragments + i) * 16;
        Accumulator sum[column_fragments];
        float* o_row = o_tile + row * stride_o + warp_n * column_fragments * 16;
#pragma unroll
        for (int j = 0; j < column_fragments; ++j)
            wmma::load_matrix_sync(sum[j], o_row + j * 16, stride_o, wmma::mem_row_major);
        shrink_rows(sum, factor, i, warp_m);
#pragma unroll
        for (int key = 0; key < tile_n; key += 16) {
            FragmentP p;
            wmma::load_matrix_sync(p, p_tile + row * stride_p + key, stride_p);
#pragma unroll
            for (int j = 0; j < column_fragments; ++j) {
                const int column = (warp_n * column_fragments + j) * 16;
                FragmentV v;
                load_fragment<head_dim>(v, v_tile, key, column);
                wmma::mma_sync(sum[j], p, v, sum[j]);
            }
        }
#pragma unroll
        for (int j = 0; j < column_fragments; ++j)
            wmma::store_matrix_sync(o_row + j * 16, sum[j], stride_o, wmma::mem_row_major);
    }
}

// factor [tile_m] = 1 / sum of each row, and its LSE. A row that saw no key: factor 0, LSE -infinity.
__device__ void finish_row(float maximum, float sum, int row, float* factor, float* lse, int first_row, int S_q)
{
    factor[row] = sum > 0.0f ? 1.0f / sum : 0.0f;
    if (lse != nullptr && first_row + row < S_q)
        lse[first_row + row] = gf::log_sum(maximum, sum);
}

__device__ void finish_softmax(const SoftmaxState& state, float* factor, float* lse, int first_row, int S_q)
{
    if (threadIdx.x % softmax_lanes != 0)
        return;
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
        const int row = pass * rows_per_pass + threadIdx.x / softmax_lanes;
        if (row < tile_m)
            finish_row(state.maximum[pass], state.sum[pass], row, factor, lse, first_row, S_q);
    }
}

// Write factor * o_tile to rows first_row ... of o, in 16-byte stores. Rows past S_q are not written.
__device__ void store_output(Element* o, long long o_row_stride, const float* o_tile, const float* factor,
                             int first_row, int S_q)
{
    constexpr int row_vectors = head_dim / vector_elements;
    for (int i = threadIdx.x; i < tile_m * row_vectors; i += threads) {
        const int row = i / row_vectors, column = i % row_vectors * vector_elements;
        if (first_row + row >= S_q)
            break;
        Vector vector;
#pragma unroll
        for (int e = 0; e < vector_elements; ++e)
            vector.element[e] = gf::from_float<Element>(o_tile[row * stride_o + column + e] * factor[row]);
        *reinterpret_cast<Vector*>(o + (first_row + row) * o_row_stride + column) = vector;
    }
}

// Attention of rows first_row ... of one head; o and lse are the head's.
__device__ void attend(const Tiles& tiles, Rows q_rows, Rows k_rows, Rows v_rows, Element* o, long long o_row_stride,
                       float* lse, int first_row, float scale)
{
    const int S_q = q_rows.count, S_kv = k_rows.count;
    const int warp_m = threadIdx.x / 32 / warps_n, warp_n = threadIdx.x / 32 % warps_n;
    const int block_end = Mask::visible_keys(min(first_row + tile_m, S_q) - 1, S_q, S_kv);  // the last row sees the most
    const int tile_count = (block_end + tile_n - 1) / tile_n;
    const float scale_log2 = scale * 1.4426950408889634f;     // exp(x) = exp2(x log2(e)); exp2 is in hardware

    load_tile<tile_m>(tiles.q, q_rows, first_row);
    gf::async_copy_commit();
    start_kv_tile(tiles, k_rows, v_rows, 0, tile_count);
    SoftmaxState state = start_softmax();
    clear(tiles.o);

    for (int tile = 0; tile < tile_count; ++tile) {
        const int slot = tile % pipeline_depth;
        gf::async_copy_wait<0>();             // k and v are here
        __syncthreads();
        // Nobody reads that slot any more.
        start_kv_tile(tiles, k_rows, v_rows, tile + pipeline_depth - 1, tile_count);
        multiply_q_k(tiles.scores, tiles.q, tiles.k + slot * k_slot, warp_m, warp_n);
        __syncthreads();                         // scores are here
        softmax(state, tiles.scores, tiles.p, tiles.factor, first_row, tile * tile_n, S_q, S_kv, scale_log2);
        __syncthreads();                         // p is here
        multiply_p_v(tiles.o, tiles.p, tiles.v + slot * v_slot, tiles.factor, warp_m, warp_n);
    }

    gf::async_copy_wait<0>();
    __syncthreads();
    finish_softmax(state, tiles.factor, lse, first_row, S_q);
    __syncthreads();                             // o and factor are here
    store_output(o, o_row_stride, tiles.o, tiles.factor, first_row, S_q);
}

extern "C" __global__ void __launch_bounds__(threads, 1)
attention_wmma(const Element* __restrict__ q, const Element* __restrict__ k, const Element* __restrict__ v,
               Element* __restrict__ o, float* __restrict__ lse,
               int H, int H_kv, int S_q, int S_kv, float scale,
               long long q_batch_stride, long long q_head_stride, long long q_row_stride,
               long long k_batch_stride, long long k_head_stride, long long k_row_stride,
               long long v_batch_stride, long long v_head_stride, long long v_row_stride,
               long long o_batch_stride, long long o_head_stride, long long o_row_stride)
{
    GF_DYNAMIC_SHARED(unsigned char, shared);
    const Tiles tiles = place_tiles(shared);
    const int batch = blockIdx.z;
    const int head = blockIdx.y, first_row = blockIdx.x * tile_m;
    const int kv_head = head / (H / H_kv);
    const Rows q_rows = {q + batch * q_batch_stride + head * q_head_stride, q_row_stride, S_q};
    const Rows k_rows = {k + batch * k_batch_stride + kv_head * k_head_stride, k_row_stride, S_kv};
    const Rows v_rows = {v + batch * v_batch_stride + kv_head * v_head_stride, v_row_stride, S_kv};
    float* head_lse = lse == nullptr ? nullptr : lse + (static_cast<long long>(batch) * H + head) * S_q;
    attend(tiles, q_rows, k_rows, v_rows, o + batch * o_batch_stride + head * o_head_stride, o_row_stride, head_lse,
           first_row, scale);
}
