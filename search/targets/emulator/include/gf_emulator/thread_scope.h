// The threads that libcu++'s atomics, barriers and pipelines serve, and sizes that promise an alignment.
#pragma once
#include "gf_emulator/qualifiers.h"

namespace cuda {

enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };

template <std::size_t Alignment>
struct aligned_size_t {
    static constexpr std::size_t align = Alignment;
    std::size_t value;
    explicit constexpr __forceinline__ aligned_size_t(std::size_t bytes) : value(bytes) {}
    constexpr __forceinline__ operator std::size_t() const { return value; }
};

}  // namespace cuda
