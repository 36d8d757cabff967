#pragma once

namespace gf {

// Programmatic dependent launch: wait until the launch that this one depends on has finished and its writes
// are visible; without such a launch, at once. PTX ISA, "griddepcontrol.wait". Needs sm_90.
__device__ __forceinline__ void dependent_launch_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// From here on launches that depend on this one may start; they are scheduled when every block has said so or
// ended. PTX ISA, "griddepcontrol.launch_dependents".
__device__ __forceinline__ void dependent_launch_allow() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace gf
