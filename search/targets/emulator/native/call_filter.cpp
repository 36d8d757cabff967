#include "call_filter.h"

#include <cstddef>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gf_emulator {

namespace {

#if defined(__x86_64__)
constexpr unsigned own_architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr unsigned own_architecture = AUDIT_ARCH_AARCH64;
#else
constexpr unsigned own_architecture = 0;
#endif
constexpr unsigned foreign_calls = 0x40000000u;  // x86-64: x32's numbers start here

using Filter = std::vector<sock_filter>;

// Both processors are little-endian: the low half comes first.
constexpr unsigned low_half(unsigned argument) {
    return unsigned(offsetof(seccomp_data, args)) + argument * unsigned(sizeof(std::uint64_t));
}

sock_filter load_word(unsigned offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset); }
sock_filter answer(unsigned with) { return BPF_STMT(BPF_RET | BPF_K, with); }
sock_filter jump(unsigned short test, unsigned value, std::size_t if_true, std::size_t if_false) {
    return BPF_JUMP(static_cast<unsigned short>(BPF_JMP | test | BPF_K), value, static_cast<unsigned char>(if_true),
                    static_cast<unsigned char>(if_false));
}

// What follows the comparison of the call's number: the conditions, then the answer. A condition that does not hold
// jumps behind it.
Filter conditions_of(const AllowedCall& call) {
    std::size_t left = 1;  // instructions from here to the end
    for (const CallCondition& condition : call.conditions) left += condition.mask == ~0u ? 2 : 3;
    Filter code;
    for (const CallCondition& condition : call.conditions) {
        const bool masked = condition.mask != ~0u;
        code.push_back(load_word(condition.offset));
        if (masked) code.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, condition.mask));
        left -= masked ? 3 : 2;
        code.push_back(condition.equal ? jump(BPF_JEQ, condition.value, 0, left)
                                       : jump(BPF_JEQ, condition.value, left, 0));
    }
    code.push_back(answer(SECCOMP_RET_ALLOW));
    return code;
}

Filter filter_of(const std::vector<AllowedCall>& calls) {
    constexpr unsigned refusal = SECCOMP_RET_TRAP;
    const sock_filter load_number = load_word(offsetof(seccomp_data, nr));
    Filter filter{load_word(offsetof(seccomp_data, arch)), jump(BPF_JEQ, own_architecture, 1, 0), answer(refusal),
                  load_number, jump(BPF_JGE, foreign_calls, 0, 1), answer(refusal)};
    for (const AllowedCall& call : calls) {
        const Filter conditions = conditions_of(call);
        filter.push_back(jump(BPF_JEQ, unsigned(call.number), 0, conditions.size()));
        filter.insert(filter.end(), conditions.begin(), conditions.end());
        filter.push_back(load_number);
    }
    filter.push_back(answer(refusal));
    return filter;
}

}  // namespace

CallCondition argument_is(unsigned argument, std::uint32_t value) { return {low_half(argument), ~0u, value, true}; }
CallCondition argument_has(unsigned argument, std::uint32_t bits) { return {low_half(argument), bits, bits, true}; }
CallCondition argument_lacks(unsigned argument, std::uint32_t bits) { return {low_half(argument), bits, 0, true}; }
CallCondition upper_half_is_not(unsigned argument, std::uint32_t value) {
    return {low_half(argument) + 4, ~0u, value, false};
}

std::vector<CallCondition> called_before(const void* address) {
    const auto place = reinterpret_cast<std::uint64_t>(address);
    const auto pointer = unsigned(offsetof(seccomp_data, instruction_pointer));
    return {{pointer, ~0u, std::uint32_t(place), true}, {pointer + 4, ~0u, std::uint32_t(place >> 32), true}};
}

bool can_filter_calls() { return own_architecture != 0; }

bool allow_only(const std::vector<AllowedCall>& calls) {
    if (!can_filter_calls()) return false;
    Filter filter = filter_of(calls);
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

}  // namespace gf_emulator
