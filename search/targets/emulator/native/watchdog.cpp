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

// Of the thread, until it is back in the kernel's code, or in vain.
constexpr unsigned most_steps = 1 << 16;
thread_local unsigned steps_left __attribute__((tls_model("initial-exec"))) = 0;

// After steps in vain, ticks in which the thread runs freely: it may be copying a hundred megabytes, and steps take
// hundreds of times as long. The first tick is due at once, since steps take processor time.
constexpr unsigned most_free_ticks = 5;
thread_local unsigned free_ticks __attribute__((tls_model("initial-exec"))) = 0;

void set_single_step([[maybe_unused]] void* context, [[maybe_unused]] bool steps) {
#if defined(__x86_64__)
    constexpr greg_t trap_flag = 0x100;
    greg_t& flags = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL];
    flags = steps ? flags | trap_flag : flags & ~trap_flag;
#endif
}

// The runtime may hold locks, so the report is made while the thread is in the kernel's own code.
void report_in_kernel(Worker& worker, void* context) {
    const char* counter = static_cast<const char*>(program_counter(context));
    if (!worker.block().inside_fiber() || !in_kernel_library(worker, counter)) return;
    report_alone();
    worker.report_timeout(counter + 1);
    end_process(exit_code_crash);
}

// Most of a checked loop's time is the runtime's, and ticks may miss the kernel's code for seconds. So the thread goes
// on by single instructions until it returns there. Where processors cannot do that, later ticks try again, and the
// parent waits somewhat longer.
void on_tick(int, siginfo_t*, void* context) {
    if (!Worker::exists()) return;
    Worker& worker = Worker::current();
    if (!worker.overdue() || !worker.block().inside_fiber()) return;
    report_in_kernel(worker, context);
    if (free_ticks != 0) {
        --free_ticks;
        return;
    }
    // In a handler of that signal a step would end the process.
    if (steps_left != 0 || sigismember(&static_cast<ucontext_t*>(context)->uc_sigmask, SIGTRAP)) return;
    steps_left = most_steps;
    set_single_step(context, true);
}

}  // namespace

void catch_timers() {
    struct sigaction action{};
    action.sa_sigaction = on_tick;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaction(timer_signal, &action, nullptr);
}

bool is_watchdog_step(void* context) {
    if (steps_left == 0) return false;
    report_in_kernel(Worker::current(), context);
    if (--steps_left == 0) {
        set_single_step(context, false);
        free_ticks = most_free_ticks;
    }
    return true;
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
