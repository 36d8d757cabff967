// Reports a candidate's wild access, stack overflow or illegal instruction with its place, then ends the
// process.
#pragma once

namespace gf_emulator {

void catch_crashes();            // once, before any candidate code
void give_thread_crash_stack();  // on each OS thread that runs candidate code

}  // namespace gf_emulator
