// CUDA's declaration words as a host compiler understands them.
#pragma once
#include "gf_emulator/standard.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))

// One OS thread runs one block at a time, so thread-local storage of the kernel's own library *is* the
// block's static shared memory. Nothing else in a kernel may be thread_local: the runtime poisons the whole
// segment. Without __constinit a local array of a class type would bring a guard byte of its own into it.
#define __shared__ __attribute__((used)) __constinit thread_local

// nvcc takes `__shared__ alignas(16) float x[4]`; in this place the standard allows only the attribute form.
#define alignas(bytes) __attribute__((aligned(bytes)))

#ifndef __clang__
#define __builtin_assume(condition) ((condition) ? (void)0 : __builtin_unreachable())
#endif
