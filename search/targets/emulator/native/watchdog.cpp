#include "watchdog.h"

#include <csignal>
#include <ctime>
#include <ucontext.h>
#include <unistd.h>

#include "own_calls.h"
#include "signals.h"
#include "worker.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace gf_emulator {

namespace {

constexpr int timer_signal = SIGALRM;
constexpr long period_ns = 10 * 1000 * 1000;

// The runtime may hold locks, so the report is made while the thread is in the kernel's own code. A loop that never
// is there at a tick is left to the parent, which waits somewhat longer.
void on_tick(int, siginfo_t*, void* context) {
    if (!Worker::exists()) return;
    Worker& worker = Worker::current();
    if (!worker.overdue() || !worker.block().inside_fiber()) return;
    const char* counter = static_cast<const char*>(program_counter(context));
    if (!in_kernel_library(worker, counter)) return;
    report_alone();
    worker.report_timeout(counter + 1);
    end_process(exit_code_crash);
}

}  // namespace

void catch_timers() {
    struct sigaction action{};
    action.sa_sigaction = on_tick;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaction(timer_signal, &action, nullptr);
}

void start_watchdog() {
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = timer_signal;
    event.sigev_notify_thread_id = gettid();
    timer_t timer;
    if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) != 0) return;
    const itimerspec period{{0, period_ns}, {0, period_ns}};
    timer_settime(timer, 0, &period, nullptr);
}

}  // namespace gf_emulator
