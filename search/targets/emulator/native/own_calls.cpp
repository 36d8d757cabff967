#include "own_calls.h"

#include <cerrno>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
extern "C" long gf_emulator_own_call(long number, long first, long second, long third);
extern "C" const char gf_emulator_own_call_made[];

// System V x86-64 to the kernel's convention: number in rax, arguments in rdi, rsi, rdx.
asm(R"(
.text
.globl gf_emulator_own_call
.hidden gf_emulator_own_call
.type gf_emulator_own_call, @function
gf_emulator_own_call:
    mov %rdi, %rax
    mov %rsi, %rdi
    mov %rdx, %rsi
    mov %rcx, %rdx
    syscall
.globl gf_emulator_own_call_made
.hidden gf_emulator_own_call_made
gf_emulator_own_call_made:
    ret
.size gf_emulator_own_call, .-gf_emulator_own_call
)");
#elif defined(__aarch64__)
extern "C" long gf_emulator_own_call(long number, long first, long second, long third);
extern "C" const char gf_emulator_own_call_made[];

// AAPCS64 to the kernel's convention: number in x8, arguments in x0, x1, x2.
asm(R"(
.text
.globl gf_emulator_own_call
.hidden gf_emulator_own_call
.type gf_emulator_own_call, %function
gf_emulator_own_call:
    mov x8, x0
    mov x0, x1
    mov x1, x2
    mov x2, x3
    svc #0
.globl gf_emulator_own_call_made
.hidden gf_emulator_own_call_made
gf_emulator_own_call_made:
    ret
.size gf_emulator_own_call, .-gf_emulator_own_call
)");
#endif

namespace gf_emulator {

#if defined(__x86_64__) || defined(__aarch64__)

long own_call(long number, long first, long second, long third) {
    return gf_emulator_own_call(number, first, second, third);
}

const void* own_call_address() { return gf_emulator_own_call_made; }

#else

long own_call(long number, long first, long second, long third) {
    const long answer = syscall(number, first, second, third);
    return answer < 0 ? -errno : answer;
}

const void* own_call_address() { return nullptr; }

#endif

void end_process(int exit_code) {
    for (;;) own_call(SYS_exit_group, exit_code, 0, 0);
}

}  // namespace gf_emulator
