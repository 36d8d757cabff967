#pragma once

namespace gf {

// 2^x without the special-function unit, of which an SM has too few for attention: a polynomial of degree 4 on
// the rest after rounding, the whole part added to the exponent. Relative error 2^-18.5; below -125 it is +0, and x
// must be below 127. Plain CUDA, so that every target has this one form. The technique: Zadouri et al., FlashAttention-4;
// the coefficients are a least-squares fit of ours, reweighted until the largest relative error no longer fell.
//! Undefined: the result for 127 and more, +infinity included, and for a NaN: of 0x7fffffff, the NaN that a GPU's sums
//! give, it is the largest finite float; other NaNs stay one. Nothing reports them.
__device__ __forceinline__ float exp2_polynomial(float x) {
    const float rounding = 12582912.0f;                   // 1.5 * 2^23: adding it rounds to a whole number
    const float whole = x + rounding, rest = x - (whole - rounding);
    float y = 0x1.3997d2p-7f;
    y = fmaf(y, rest, 0x1.ca1440p-5f);
    y = fmaf(y, rest, 0x1.ec06dap-3f);
    y = fmaf(y, rest, 0x1.62e0dcp-1f);
    y = fmaf(y, rest, 0x1.ffffe8p-1f);
    const int bits = __float_as_int(y) + (__float_as_int(whole) << 23);
    return x < -125.0f ? 0.0f : __int_as_float(bits);
}

}  // namespace gf
