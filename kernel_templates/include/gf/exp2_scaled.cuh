#pragma once

namespace gf {

// 2^x without the special-function unit: a polynomial of degree 4 on the rest after rounding, times a power of two whose
// exponent is the whole part. Relative error 2^-18.5; below -125 it is +0, x must be below 127, and a NaN stays one.
// Plain CUDA, so that every target has this one form. The technique: Zadouri et al., FlashAttention-4.
//! Undefined: the result for 127 and more, +infinity included; nothing reports it.
__device__ __forceinline__ float exp2_scaled(float x) {
    const float rounding = 12582912.0f + 127.0f;          // 1.5 * 2^23 rounds to a whole number; 127 is the exponent's bias
    const float whole = x + rounding, rest = x - (whole - rounding);
    float y = 0x1.3997d2p-7f;
    y = fmaf(y, rest, 0x1.ca1440p-5f);
    y = fmaf(y, rest, 0x1.ec06dap-3f);
    y = fmaf(y, rest, 0x1.62e0dcp-1f);
    y = fmaf(y, rest, 0x1.ffffe8p-1f);
    y *= __int_as_float(__float_as_int(whole) << 23);
    return x < -125.0f ? 0.0f : y;
}

}  // namespace gf
