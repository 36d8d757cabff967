// Reports a candidate's wild access, stack overflow or illegal instruction with its place, then ends the
// process.
#pragma once

namespace gf_emulator {

// For a thread that crashes, or makes a refused call: the first one returns, reports and ends the process; others
// wait for the end. When the first one crashes again while it reports, the process ends here.
void report_alone();

class Worker;

void catch_crashes();  // once, before any candidate code
// Where the thread was when it got the signal; null on a machine that is not known.
const void* program_counter(void* context);
bool in_kernel_library(const Worker& worker, const void* address);
void give_thread_crash_stack();  // on each OS thread that runs candidate code

}  // namespace gf_emulator
