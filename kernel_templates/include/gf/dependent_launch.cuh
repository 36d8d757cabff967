#pragma once

namespace gf {

// Programmatic dependent launch: wait until the launch that this one depends on has finished and its writes
// are visible; without such a launch, at once. PTX ISA, "griddepcontrol.wait". Needs sm_90.
//! Undefined: nothing by itself. What the previous launch writes is undefined before the wait, and what it reads
//! must not be overwritten before it (the emulator: `race`). Another thread's wait counts only behind a barrier.
__device__ __forceinline__ void dependent_launch_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// From here on launches that depend on this one may start; they are scheduled when every block has said so or
// ended. PTX ISA, "griddepcontrol.launch_dependents".
//! Undefined: nothing by itself. A dependent launch that reads without dependent_launch_wait may miss this launch's
//! writes, even those before this call.
__device__ __forceinline__ void dependent_launch_allow() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace gf
