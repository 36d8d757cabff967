// Block barriers, fences and what a device program says to the outside world.
#pragma once
#include "gf_emulator/abi.h"
#include "gf_emulator/printf.h"
#include "gf_emulator/qualifiers.h"

// The functions have CUDA's types; a call is a macro, since a barrier knows its line.
__forceinline__ void __syncthreads() { gf_emulator_block_barrier(gf_emulator::BarrierOperation::sync, 0, 0); }
__forceinline__ void gf_emulator_sync(int line) {
    gf_emulator_block_barrier(gf_emulator::BarrierOperation::sync, 0, line);
}
#define __syncthreads() gf_emulator_sync(__builtin_LINE())
#define GF_EMULATOR_VOTE(name, operation)                                                              \
    __forceinline__ int __syncthreads_##name(int predicate) {                                          \
        return gf_emulator_block_barrier(gf_emulator::BarrierOperation::operation, predicate, 0);      \
    }                                                                                                  \
    __forceinline__ int gf_emulator_sync_##name(int line, int predicate) {                             \
        return gf_emulator_block_barrier(gf_emulator::BarrierOperation::operation, predicate, line);   \
    }
GF_EMULATOR_VOTE(count, count)
GF_EMULATOR_VOTE(and, all)
GF_EMULATOR_VOTE(or, any)
#undef GF_EMULATOR_VOTE
#define __syncthreads_count(...) gf_emulator_sync_count(__builtin_LINE(), __VA_ARGS__)
#define __syncthreads_and(...) gf_emulator_sync_and(__builtin_LINE(), __VA_ARGS__)
#define __syncthreads_or(...) gf_emulator_sync_or(__builtin_LINE(), __VA_ARGS__)

__forceinline__ void __threadfence() { gf_emulator_fence(true); }
__forceinline__ void __threadfence_block() { gf_emulator_fence(false); }
__forceinline__ void __threadfence_system() { gf_emulator_fence(true); }
__forceinline__ void __nanosleep(unsigned) { gf_emulator_yield(); }
__forceinline__ long long clock64() { return gf_emulator_clock(); }
// The C library has this name, too.
__forceinline__ long gf_emulator_cycles() { return long(gf_emulator_clock()); }
#define clock gf_emulator_cycles

__forceinline__ void __prof_trigger(int) {}

[[noreturn]] __forceinline__ void __trap() { gf_emulator_trap("__trap()"); }
[[noreturn]] __forceinline__ void __brkpt() { gf_emulator_trap("__brkpt()"); }

#undef assert
#define assert(condition) ((condition) ? (void)0 : gf_emulator_trap("assert(" #condition ")"))
