// Ends a run whose threads use more processor time than they may, and names the line at which it is.
#pragma once

namespace gf_emulator {

// To be called once in each thread that runs blocks, before calls are refused: it makes a timer.
void start_watchdog();
void catch_timers();
// Whether a trap is of the watchdog's own making; in the kernel's code it reports and ends the process.
bool is_watchdog_step(void* context);

}  // namespace gf_emulator
