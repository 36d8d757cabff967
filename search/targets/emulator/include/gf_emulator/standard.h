// The host's own headers, all of them, before any CUDA name is defined: CUDA's words (min, alignas,
// __shared__ ...) must not reach into them.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#if defined(__F16C__)
#include <immintrin.h>
#endif
