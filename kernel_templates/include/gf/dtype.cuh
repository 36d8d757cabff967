#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace gf {

// One storage type's conversions; a new storage type adds one specialisation.
//! Undefined: nothing; a T without a specialisation does not compile.
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
//! Undefined: nothing.
template <class T>
using pair = typename Dtype<T>::Pair;

// Exact.
//! Undefined: nothing; a NaN stays one.
template <class T>
__device__ __forceinline__ float to_float(T value) {
    return Dtype<T>::to_float(value);
}

// Rounded to nearest even; beyond the format's range it becomes infinite.
//! Undefined: nothing; a NaN stays one.
template <class T>
__device__ __forceinline__ T from_float(float value) {
    return Dtype<T>::from_float(value);
}

// The same for two elements at once; x is the one at the lower address.
//! Undefined: nothing.
template <class T>
__device__ __forceinline__ float2 to_float2(pair<T> value) {
    return Dtype<T>::to_float2(value);
}
template <class T>
__device__ __forceinline__ pair<T> from_float2(float2 value) {
    return Dtype<T>::from_float2(value);
}

}  // namespace gf
