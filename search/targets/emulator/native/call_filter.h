// A list of system calls that a process may still make (seccomp(2)); the kernel refuses every other.
#pragma once
#include <cstdint>
#include <vector>

namespace gf_emulator {

// A 32-bit word of what the kernel knows of a call, under a mask, is this value, or is not.
struct CallCondition {
    unsigned offset;  // in seccomp_data
    std::uint32_t mask;
    std::uint32_t value;
    bool equal;
};

// Of the argument's low half, which is all of an int.
CallCondition argument_is(unsigned argument, std::uint32_t value);
CallCondition argument_has(unsigned argument, std::uint32_t bits);
CallCondition argument_lacks(unsigned argument, std::uint32_t bits);
CallCondition upper_half_is_not(unsigned argument, std::uint32_t value);

// The call is made by the instruction before this address. Two conditions.
std::vector<CallCondition> called_before(const void* address);

// The call is allowed when all conditions hold. A call with several entries is allowed by any of them.
struct AllowedCall {
    int number;
    std::vector<CallCondition> conditions{};
};

// Whether this processor's calls can be filtered at all.
bool can_filter_calls();

// For all threads of this process, and for good. Every other call raises SIGSYS. False: this kernel lacks it.
bool allow_only(const std::vector<AllowedCall>& calls);

}  // namespace gf_emulator
