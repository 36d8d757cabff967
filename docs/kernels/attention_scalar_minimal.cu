// Attention in plain CUDA C++: a few lanes share a query row, read its keys once, and keep a running softmax.
//
//   q, o [B, H, S_q, D]   k, v [B, H_kv, S_kv, D]   lse [B, H, S_q] or null
//   The last dim is contiguous; all other strides are arguments, in elements. H is a multiple of H_kv.
//   grid (ceil(S_q / tile_m), H, B), one query row for every row_threads threads
#include <cuda_fp16.h>

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
constexpr int tile_m = 4;            // query rows of a block
constexpr int row_threads = 32;       // neighbouring lanes that share a query row
constexpr int keys_per_step = 1;     // keys between two updates of the running maximum
constexpr int vector_elements = 1;   // elements of one load or store
constexpr int threads = tile_m * row_threads;

// A row is cut into vectors; lane p of its row_threads lanes owns vectors p, p + row_threads, ...
struct alignas(vector_elements * sizeof(Element)) Vector { Element element[vector_elements]; };
constexpr int lane_vectors = head_dim / (row_threads * vector_elements);
constexpr int lane_columns = lane_vectors * vector_elements;

// Rows of K or V, in global memory.
struct Rows { const Element* first; long long stride; };

// One lane's part of a query row: its columns of q and of the unnormalised o, and the softmax so far.
struct RowState {
    float q[lane_columns];
    float o[lane_columns];     // sum of p * v, where p = exp(score - maximum)
    float maximum;             // of the scaled scores so far; -infinity before the first visible key
    float sum;                 // of p
};

// Scores are also scaled by log2(e), so that the exponential is a power of two, which the hardware computes.
constexpr float exponent_unit = 1.4426950408889634f;
__device__ float exponential(float x) { return exp2f(x); }
__device__ float log_sum(float maximum, float sum) { return (maximum + log2f(sum)) * 0.6931471805599453f; }

using Mask = gf::Mask;

// share[lane_columns] = this lane's columns of a row.
__device__ void load_share(float (&share)[lane_columns], const Element* row, int part)
{
    const Vector* vectors = reinterpret_cast<const Vector*>(row);
#pragma unroll
    for (int i = 0; i < lane_vectors; ++i) {
        const Vector vector = vectors[i * row_threads + part];
#pragma unroll
        for (int e = 0; e < vector_elements; ++e)
            share[i * vector_elements + e] = gf::to_float(vector.element[e]);
    }
}

// This lane's columns of a row = factor * share[lane_columns].
__device__ void store_share(Element* row, const float (&share)[lane_columns], float factor, int part)
{
    Vector* vectors = reinterpret_cast<Vector*>(row);
#pragma unroll
    for (int i = 0; i < lane_vectors; ++i) {
        Vector vector;
#pragma unroll
        for (int e = 0; e < vector_elements; ++e)
            vector.element[e] = gf::from_float<Element>(share[i * vector_elements + e] * factor);
        vectors[i * row_threads + part] = vector;
    }
}

// q . k, summed over the lanes that share the row. Each lane gets the sum.
__device__ float dot(const float (&q)[lane_columns], const Element* k_row, int part)
{
    float k[lane_columns];
    load_share(k, k_row, part);
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < lane_columns; ++c)
        sum = fmaf(q[c], k[c], sum);
    return gf::warp_sum<row_threads>(sum);
}

// Add keys_per_step keys from first_key on to the row. The row does not see keys from `row_end` on.
// Keys past `last_key` do not exist: the last key is read in their place, and the row does not see them either.
__device__ void attend(RowState& row, Rows k, Rows v, int first_key, int last_key, int row_end, float scale,
                       int part)
{
    float score[keys_per_step];
    float maximum = row.maximum;
#pragma unroll
    for (int j = 0; j < keys_per_step; ++j) {
        const int key = min(first_key + j, last_key);
        const float product = dot(row.q, k.first + key * k.stride, part);
        score[j] = first_key + j < row_end ? product : gf::minus_infinity();
        maximum = fmaxf(maximum, score[j] * scale);
    }
    // Before the first visible key the maximum is -infinity, and -infinity minus itself would be NaN.
    const float shift = maximum == gf::minus_infinity() ? 0.0f : maximum;
    const float rescale = exponential(row.maximum - shift);
    row.maximum = maximum;
    row.sum *= rescale;
#pragma unroll
    for (int c = 0; c < lane_columns; ++c)
        row.o[c] *= rescale;
#pragma unroll
    for (int j = 0; j < keys_per_step; ++j) {
        const float p = exponential(fmaf(score[j], scale, -shift));
        float v_share[lane_columns];
        load_share(v_share, v.first + min(first_key + j, last_key) * v.stride, part);
        row.sum += p;
#pragma unroll
        for (int c = 0; c < lane_columns; ++c)
            row.o[c] = fmaf(p, v_share[c], row.o[c]);
    }
}

extern "C" __global__ void __launch_bounds__(threads)
attention_scalar(const Element* __restrict__ q, const Element* __restrict__ k, const Element* __restrict__ v,
                 Element* __restrict__ o, float* __restrict__ lse,
                 int H, int H_kv, int S_q, int S_kv, float scale,
                 long long q_batch_stride, long long q_head_stride, long long q_row_stride,
                 long long k_batch_stride, long long k_head_stride, long long k_row_stride,
                 long long v_batch_stride, long long v_head_stride, long long v_row_stride,
                 long long o_batch_stride, long long o_head_stride, long long o_row_stride)
{
    const int batch = blockIdx.z, head = blockIdx.y, kv_head = head / (H / H_kv);
    q += batch * q_batch_stride + head * q_head_stride;
    k += batch * k_batch_stride + kv_head * k_head_stride;
    v += batch * v_batch_stride + kv_head * v_head_stride;
    o += batch * o_batch_stride + head * o_head_stride;

    // Rows past the end repeat the last one, so that all lanes stay together, and are not stored.
    const int part = threadIdx.x % row_threads;
    const int first_row = blockIdx.x * tile_m;
    const int row_index = first_row + threadIdx.x / row_threads;
    const int source_row = min(row_index, S_q - 1);
    const int row_end = Mask::visible_keys(source_row, S_q, S_kv);
    const int block_end = Mask::visible_keys(min(first_row + tile_m, S_q) - 1, S_q, S_kv);

    const float exponent_scale = scale * exponent_unit;
    RowState row = {};
    row.maximum = gf::minus_infinity();
    load_share(row.q, q + source_row * q_row_stride, part);
    for (int key = 0; key < block_end; key += keys_per_step)
        attend(row, {k, k_row_stride}, {v, v_row_stride}, key, S_kv - 1, row_end, exponent_scale, part);

    if (row_index >= S_q)
        return;
    // A row that saw no key: O = 0, LSE = -infinity.
    store_share(o + row_index * o_row_stride, row.o, row.sum > 0.0f ? 1.0f / row.sum : 0.0f, part);
    if (lse != nullptr && part == 0)
        lse[(static_cast<long long>(batch) * H + head) * S_q + row_index] = log_sum(row.maximum, row.sum);
}
