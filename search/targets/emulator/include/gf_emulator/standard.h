// The host's own headers, all of them, before any CUDA name is defined: CUDA's words (min, alignas,
// __shared__ ...) must not reach into them.
#pragma once
#include "gf_emulator/copies.h"

// Names of C's library that neither CUDA nor NVRTC declares: kernels have functions and variables of these names.
#define basename gf_emulator_host_basename
#define drem gf_emulator_host_drem
#define fd_set gf_emulator_host_fd_set
#define ffs gf_emulator_host_ffs
#define finite gf_emulator_host_finite
#define gamma gf_emulator_host_gamma
#define index gf_emulator_host_index
#define pselect gf_emulator_host_pselect
#define random gf_emulator_host_random
#define rindex gf_emulator_host_rindex
#define scalb gf_emulator_host_scalb
#define select gf_emulator_host_select
#define sigset_t gf_emulator_host_sigset_t
#define significand gf_emulator_host_significand
#define srandom gf_emulator_host_srandom

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

#undef basename
#undef drem
#undef fd_set
#undef ffs
#undef finite
#undef gamma
#undef index
#undef pselect
#undef random
#undef rindex
#undef scalb
#undef select
#undef sigset_t
#undef significand
#undef srandom
