// Takes from this process all that a kernel does not need: files, descriptors, capabilities, system calls.
// Where the kernel lacks a feature for this, the rest still holds.
#pragma once
#include <string>
#include <vector>

namespace gf_emulator {

// Landlock, for this thread and those that it starts later, as far as the kernel's version goes: no file but those
// below `writable` and, to read, `readable`; no network, no abstract socket of others, no signal to others.
void confine_files(const std::vector<std::string>& writable, const std::vector<std::string>& readable);

// For this thread and those that it starts later.
void drop_capabilities();

// Closes every other descriptor.
void keep_descriptors(int first, int second);

// `data_bytes`: of memory that can be written; `address_bytes`: of all addresses.
void limit_resources(unsigned long long data_bytes, unsigned long long address_bytes, unsigned long long cpu_s);
// No signal can be queued, and no timer made.
void limit_signals();
// No descriptor can be made with this number or a larger one.
// It can be raised again, to `most`, while system calls are not refused.
void limit_descriptors(unsigned long long end, unsigned long long most);

// For all threads: only the calls that running blocks needs. `library` is the descriptor from which the library is
// loaded, `vault_half` the upper half of addresses whose protection only own_call may change. False: this kernel
// cannot filter calls.
bool refuse_calls(int report, int library, unsigned vault_half);

// A refused call ends the process with a fault that names it.
void catch_refused_calls();

}  // namespace gf_emulator
