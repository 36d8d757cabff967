#pragma once

namespace gf {

// True in one lane of the warp, the same one at each call, where all 32 lanes run it together. Unlike a
// comparison with a lane's number, the compiler knows that exactly one passes. Needs sm_90. PTX ISA, "elect.sync".
//! Undefined: a call in diverged code, or in a warp with an exited or missing lane: the others may wait for ever
//! (the emulator: `divergence`). Which lane it is, is not specified.
__device__ __forceinline__ bool elect_thread() {
    unsigned elected;
    asm volatile(
        "{\n"
        ".reg .pred elected;\n"
        "elect.sync _|elected, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, elected;\n"
        "}"
        : "=r"(elected));
    return elected != 0;
}

}  // namespace gf
