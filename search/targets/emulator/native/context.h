// Fibers' machine state: a switch between stacks without the kernel, and the stacks themselves.
#pragma once
#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace gf_emulator {

class Context {
public:
    // The next switch_to(*this) calls `entry` on the given stack; `entry` must never return.
    void prepare(char* stack_low, char* stack_high, void (*entry)());
    // Saves the running state here and continues `next`.
    void switch_to(Context& next);

private:
#if defined(__x86_64__)
    void* stack_pointer_ = nullptr;
#else
    ucontext_t state_;
#endif
};

// One stack a thread of a block, each above a page that faults when a stack overflows.
class StackPool {
public:
    static constexpr std::size_t stack_bytes = 128 * 1024;
    static constexpr std::size_t guard_bytes = 4096;

    ~StackPool();
    // Without guards an overflow is not noticed: each guard costs one of the system's few mappings.
    void reserve(unsigned count, bool guarded = true);
    char* low(unsigned index) const { return base_ + index * stack_bytes + guard_bytes; }
    // Tops are staggered, or every fiber's hot lines would share the same few cache sets.
    char* high(unsigned index) const { return base_ + (index + 1) * stack_bytes - index % 32 * 128; }
    bool in_guard(const void* address) const;
    unsigned owner(const void* address) const {
        return unsigned((static_cast<const char*>(address) - base_) / std::ptrdiff_t(stack_bytes));
    }
    bool contains(const void* address) const { return std::uintptr_t(address) - std::uintptr_t(base_) < bytes(); }
    const char* first() const { return base_; }
    std::size_t bytes() const { return count_ * stack_bytes; }

private:
    char* base_ = nullptr;  // a multiple of stack_bytes: see local_memory.h
    unsigned count_ = 0;
};

}  // namespace gf_emulator
