// The host's own headers, all of them, before any CUDA name is defined: CUDA's words (min, alignas,
// __shared__ ...) must not reach into them.
#pragma once
#include "gf_emulator/copies.h"

#include <cstddef>
// libstdc++ would instantiate Bessel's, Legendre's and other functions of C++17 in every kernel's compile. With them
// came std::copy, std::fill and their like, which kernels use.
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#include <cmath>
#if __has_include(<bits/stl_algobase.h>)
#include <bits/stl_algobase.h>
#endif
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <math.h>  // C++'s overloads for float as global names, as in CUDA
#include <new>
#include <stdlib.h>
#include <type_traits>
#include <utility>
