#pragma once

namespace gf {

// Change how many registers each thread of this warp owns, a multiple of 8 from 24 to 256: producers give
// registers back, consumers take them. All warps of a warpgroup run the same call; growing waits until the
// block's pool holds enough. The kernel needs __launch_bounds__ with both numbers. Needs sm_90a. PTX ISA,
// "Miscellaneous Instructions: setmaxnreg".
//! Undefined: a call that not all four warps of the warpgroup run (the emulator: `divergence`), and a second one
//! before they have synchronised; growing to fewer registers than there are, shrinking to more. A pool that never
//! holds enough is waited for without end (`deadlock`). Without a limit of registers ptxas leaves the call out.
template <int registers>
__device__ __forceinline__ void register_grow() {
    static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256, "24 to 256, in steps of 8");
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void register_shrink() {
    static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256, "24 to 256, in steps of 8");
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

}  // namespace gf
