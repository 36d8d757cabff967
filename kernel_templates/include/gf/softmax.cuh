// Parts of a softmax whose exponentials are powers of two.
#pragma once

namespace gf {

// -infinity: the score of a key that a row does not see.
//! Undefined: nothing.
__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

// The natural logarithm of a row's sum of exponentials, from the maximum of its scores (in units of ln 2) and from the
// sum of 2^(score - maximum). It is -infinity for a row that saw no key, whose maximum is -infinity and whose sum is 0.
//! Undefined: nothing; a NaN stays one, a sum below zero gives a NaN.
__device__ __forceinline__ float log_sum(float maximum, float sum)
{
    return (maximum + log2f(sum)) * 0.6931471805599453f;
}

}  // namespace gf
