// Limits candidate code to memory, time, and the files of its own work folder.
// Where the kernel lacks a feature for this, the process's limits still hold.
#pragma once
#include <string>
#include <vector>

namespace gf_emulator {

// For this thread and those that it starts later: no file but those below `writable` and, to read, `readable`.
void confine_files(const std::vector<std::string>& writable, const std::vector<std::string>& readable);

// For all threads: no network, no new thread or process, no signal to others, no change of limits.
void refuse_calls();

// The folder that a path lies in.
std::string folder_of(const std::string& path);

}  // namespace gf_emulator
