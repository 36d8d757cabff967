// The host's own headers, all of them, before any CUDA name is defined: CUDA's words (min, alignas,
// __shared__ ...) must not reach into them.
#pragma once
#include "gf_emulator/copies.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <math.h>  // C++'s overloads for float as global names, as in CUDA
#include <new>
#include <stdlib.h>
#include <type_traits>
#include <utility>

#if defined(__F16C__)
#include <immintrin.h>
#endif
