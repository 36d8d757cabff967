#include "context.h"

#include <cstdint>
#include <sys/mman.h>

#include "memory_map.h"

#if defined(__x86_64__)
extern "C" void gf_emulator_switch(void** save, void* load);

// System V x86-64: a call preserves rbx, rbp, r12-r15 and the stack pointer; the vector registers are the
// caller's.
asm(R"(
.text
.globl gf_emulator_switch
.hidden gf_emulator_switch
.type gf_emulator_switch, @function
gf_emulator_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.size gf_emulator_switch, .-gf_emulator_switch
)");
#endif

namespace gf_emulator {

#if defined(__x86_64__)

void Context::prepare(char*, char* stack_high, void (*entry)()) {
    constexpr int saved_registers = 6;
    void** top = reinterpret_cast<void**>(reinterpret_cast<std::uintptr_t>(stack_high) & ~std::uintptr_t(15));
    *--top = nullptr;  // where `entry` would return to
    *--top = reinterpret_cast<void*>(entry);
    stack_pointer_ = top - saved_registers;
}

void Context::switch_to(Context& next) { gf_emulator_switch(&stack_pointer_, next.stack_pointer_); }

#else

void Context::prepare(char* stack_low, char* stack_high, void (*entry)()) {
    getcontext(&state_);
    state_.uc_stack.ss_sp = stack_low;
    state_.uc_stack.ss_size = stack_high - stack_low;
    state_.uc_link = nullptr;
    makecontext(&state_, entry, 0);
}

void Context::switch_to(Context& next) { swapcontext(&state_, &next.state_); }

#endif

StackPool::~StackPool() {
    if (base_) munmap(base_, count_ * stack_bytes);
}

void StackPool::reserve(unsigned count, bool guarded) {
    if (count <= count_) return;
    if (base_) munmap(base_, count_ * stack_bytes);
    char* mapped = map_pages((count + 1) * stack_bytes);
    base_ = reinterpret_cast<char*>(round_up(std::uintptr_t(mapped), stack_bytes));
    if (base_ != mapped) munmap(mapped, std::size_t(base_ - mapped));
    munmap(base_ + count * stack_bytes, std::size_t(mapped + stack_bytes - base_));
    count_ = count;
    for (unsigned i = 0; guarded && i < count; i++) mprotect(base_ + i * stack_bytes, guard_bytes, PROT_NONE);
}

bool StackPool::in_guard(const void* address) const {
    const char* byte = static_cast<const char*>(address);
    return byte >= base_ && byte < base_ + count_ * stack_bytes && (byte - base_) % stack_bytes < guard_bytes;
}

}  // namespace gf_emulator
