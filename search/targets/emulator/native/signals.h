// Reports a candidate's wild access, stack overflow or illegal instruction with its place, then ends the
// process.
#pragma once

namespace gf_emulator {

class Worker;

void catch_crashes();
// Where the thread was when it got the signal; null on a machine that is not known.
const void* program_counter(void* context);
bool in_kernel_library(const Worker& worker, const void* address);            // once, before any candidate code
void give_thread_crash_stack();  // on each OS thread that runs candidate code

}  // namespace gf_emulator
