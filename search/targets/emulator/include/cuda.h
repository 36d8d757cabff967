// Stands in for the part of CUDA's cuda.h that device code names: the descriptor of a tensor, whose numbers are the
// launch's (native/tensor_map.h).
#pragma once

struct __attribute__((aligned(64))) CUtensorMap_st {
    unsigned long long opaque[16];
};
typedef CUtensorMap_st CUtensorMap;
