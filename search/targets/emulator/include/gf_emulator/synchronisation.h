// Block barriers, fences and what a device program says to the outside world.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/printf.h"
#include "gf_emulator/qualifiers.h"

__forceinline__ void __syncthreads(int line = __builtin_LINE()) {
    gf_emulator_block_barrier(gf_emulator::BarrierOperation::sync, 0, line);
}
__forceinline__ int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
    return gf_emulator_block_barrier(gf_emulator::BarrierOperation::count, predicate, line);
}
__forceinline__ int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
    return gf_emulator_block_barrier(gf_emulator::BarrierOperation::all, predicate, line);
}
__forceinline__ int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
    return gf_emulator_block_barrier(gf_emulator::BarrierOperation::any, predicate, line);
}

__forceinline__ void __threadfence() { gf_emulator_fence(true); }
__forceinline__ void __threadfence_block() { gf_emulator_fence(false); }
__forceinline__ void __threadfence_system() { gf_emulator_fence(true); }
__forceinline__ void __nanosleep(unsigned) { gf_emulator_yield(); }
__forceinline__ void cudaGridDependencySynchronize() { gf_emulator_dependent_launch_wait(); }
__forceinline__ void cudaTriggerProgrammaticLaunchCompletion() { gf_emulator_dependent_launch_allow(); }
__forceinline__ long long clock64() { return gf_emulator_clock(); }
// The C library has this name, too.
__forceinline__ long gf_emulator_cycles() { return long(gf_emulator_clock()); }
#define clock gf_emulator_cycles

__forceinline__ void __prof_trigger(int) {}

[[noreturn]] __forceinline__ void __trap() { gf_emulator_trap("__trap()"); }
[[noreturn]] __forceinline__ void __brkpt() { gf_emulator_trap("__brkpt()"); }

#undef assert
#define assert(condition) ((condition) ? (void)0 : gf_emulator_trap("assert(" #condition ")"))
