// The names of system calls, for reports.
#pragma once
#include <string>

namespace gf_emulator {

// "truncate", or "number 4711" when it is not listed.
std::string name_of_call(int number);

}  // namespace gf_emulator
