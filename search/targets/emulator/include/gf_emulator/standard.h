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
// No function of CUDA is noexcept for NVRTC, and a text could ask for it. <cstddef> has defined glibc's words.
#ifdef __THROW
#undef __THROW
#undef __THROWNL
#undef __NTH
#undef __NTHNL
#define __THROW
#define __THROWNL
#define __NTH(function) function
#define __NTHNL(function) function
#endif
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
#include <new>
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

// The host's macros with plain names that stand for more than a number. A text may have a variable of such a name, which
// a GPU reads; the macro would be read here. What a text may mean is an object instead, which such a variable hides.
#undef alloca
#undef be16toh
#undef be32toh
#undef be64toh
#undef htobe16
#undef htobe32
#undef htobe64
#undef htole16
#undef htole32
#undef htole64
#undef le16toh
#undef le32toh
#undef le64toh
#undef issubnormal
#undef strdupa
#undef strndupa
#undef FD_CLR
#undef FD_ISSET
#undef FD_SET
#undef FD_ZERO
#undef MB_CUR_MAX
#undef NFDBITS
#undef SNAN
#undef SNANF
#undef SNANL
#undef WEXITSTATUS
#undef WIFCONTINUED
#undef WIFEXITED
#undef WIFSIGNALED
#undef WIFSTOPPED
#undef WSTOPSIG
#undef WTERMSIG
#undef HUGE_VAL
#undef HUGE_VALF
#undef INFINITY
#undef NAN
#define HUGE_VAL gf_emulator_huge_val
#define HUGE_VALF gf_emulator_huge_valf
#define INFINITY gf_emulator_infinity
#define NAN gf_emulator_nan
constexpr double HUGE_VAL = __builtin_huge_val();
constexpr float HUGE_VALF = __builtin_inff(), INFINITY = __builtin_inff(), NAN = __builtin_nanf("");
