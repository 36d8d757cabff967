#pragma once

namespace gf {

// Keeps the arithmetic that `value` comes from before what follows. ptxas moves a wgmma_wait up over arithmetic that was
// written before it, since no register ties them together; it moves nothing over a sleep. Both orders are right, and
// either may be faster. The sleep never comes where the value is never negative, and does no harm where it is. Plain
// CUDA, so that every target has this one form.
//! Undefined: nothing; a NaN does not sleep.
__device__ __forceinline__ void computed_before(float value) {
    if (value < 0.0f) __nanosleep(1);
}

}  // namespace gf
