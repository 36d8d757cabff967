// CUDA's declaration words as a host compiler understands them.
#pragma once
#include "gf_emulator/standard.h"

#define __global__
#define __device__
#define __host__
// The runtime knows constant memory by its section. Each object has its own, since a compiler puts no constant beside a
// variable.
#define GF_EMULATOR_TEXT_OF(number) #number
#define GF_EMULATOR_CONSTANT(number) __attribute__((section(".gf_constant." GF_EMULATOR_TEXT_OF(number))))
#define __constant__ GF_EMULATOR_CONSTANT(__COUNTER__)
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __forceinline__ inline __attribute__((always_inline))
// A checked build inlines these too: the compiler's checks of a thread's own arrays end at a call.
#ifdef GF_EMULATOR_CHECKED
#define __noinline__
#else
#define __noinline__ __attribute__((noinline))
#endif
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
