// What probes share: values that a template and its reference compute alike.
#pragma once

namespace gf {

// The known P of an attention's probe `pv`: eighths from 1/8 to 1, exact in fp16, bf16, e4m3 and e5m2, scattered by a
// multiplicative hash, so that no two tiles, rows or keys that could be taken for each other are alike.
//! Undefined: nothing; all products wrap around.
__device__ __forceinline__ float probe_weight(int row, int key)
{
    unsigned hash = row * 0x85ebca6bu + key * 0x9e3779b1u;
    hash = (hash ^ (hash >> 15)) * 0x2c1b3c6du;
    return static_cast<float>(1 + (hash >> 29)) * 0.125f;
}

}  // namespace gf
