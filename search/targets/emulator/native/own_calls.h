// The system calls that only this program makes: it writes its report, ends the process and opens its vault from
// one instruction, and the filter of sandbox.cpp refuses these calls from any other.
#pragma once

namespace gf_emulator {

// Like syscall(), without errno: a negative number of an error.
long own_call(long number, long first, long second, long third);

// The address that the kernel sees for calls of own_call; null: this processor's calls are not filtered.
const void* own_call_address();

[[noreturn]] void end_process(int exit_code);

}  // namespace gf_emulator
