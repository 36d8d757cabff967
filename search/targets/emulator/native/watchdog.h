// Ends a run whose threads use more processor time than they may, and names the line at which it is.
#pragma once

namespace gf_emulator {

// To be called once in each thread that runs blocks, before calls are refused: it makes a timer.
void start_watchdog();
void catch_timers();

}  // namespace gf_emulator
