#pragma once
#include <cuda_fp8.h>
#include "gf/dtype.cuh"

namespace gf {

// fp8 as storage types. To float: exact. From float: to nearest even and saturating: what is beyond the
// format's range, the infinities too, becomes its largest finite value (448 for e4m3, 57344 for e5m2), a NaN
// stays one. One instruction from sm_89 on, integer arithmetic before. PTX ISA,
// "cvt.rn.satfinite.e4m3x2.f32".
//! Undefined: nothing. The same for e5m2.
template <>
struct Dtype<__nv_fp8_e4m3> {
    using Pair = __nv_fp8x2_e4m3;
    static __device__ __forceinline__ float to_float(__nv_fp8_e4m3 value) { return float(value); }
    static __device__ __forceinline__ __nv_fp8_e4m3 from_float(float value) { return __nv_fp8_e4m3(value); }
    static __device__ __forceinline__ float2 to_float2(__nv_fp8x2_e4m3 pair) { return float2(pair); }
    static __device__ __forceinline__ __nv_fp8x2_e4m3 from_float2(float2 pair) {
        return __nv_fp8x2_e4m3(pair);
    }
};

template <>
struct Dtype<__nv_fp8_e5m2> {
    using Pair = __nv_fp8x2_e5m2;
    static __device__ __forceinline__ float to_float(__nv_fp8_e5m2 value) { return float(value); }
    static __device__ __forceinline__ __nv_fp8_e5m2 from_float(float value) { return __nv_fp8_e5m2(value); }
    static __device__ __forceinline__ float2 to_float2(__nv_fp8x2_e5m2 pair) { return float2(pair); }
    static __device__ __forceinline__ __nv_fp8x2_e5m2 from_float2(float2 pair) {
        return __nv_fp8x2_e5m2(pair);
    }
};

// Four neighbours in one register, x in its lowest byte: what mma_m16n8k32 takes.
//! Undefined: nothing; a T that is not fp8 does not compile.
template <class T>
__device__ __forceinline__ unsigned pack_fp8x4(float x, float y, float z, float w) {
    const unsigned low = from_float2<T>(make_float2(x, y)).__x, high = from_float2<T>(make_float2(z, w)).__x;
    return low | high << 16;
}

}  // namespace gf
