// A thread's own memory: the frames of its stack that are live.
#pragma once
#include <cstddef>
#include <cstdint>

#include "context.h"

namespace gf_emulator {

// Whether all bytes lie in frames of the running thread that lie above the present one. Stacks are aligned to their
// size, so the stack pointer alone tells where its stack ends.
__attribute__((always_inline)) inline bool in_live_frames(const void* address, std::size_t bytes) {
#if defined(__x86_64__)
    std::uintptr_t here;
    asm("mov %%rsp, %0" : "=r"(here));
#else
    const std::uintptr_t here = std::uintptr_t(__builtin_frame_address(0));
#endif
    const std::size_t live = ~here & (StackPool::stack_bytes - 1), from = std::uintptr_t(address) - here;
    return from < live && bytes <= live - from;
}

}  // namespace gf_emulator
