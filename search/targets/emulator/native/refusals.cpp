// A system call that the filter refuses becomes a fault of the kernel that made it.
#include <csignal>

#include "call_names.h"
#include "loading.h"
#include "own_calls.h"
#include "report.h"
#include "sandbox.h"
#include "signals.h"
#include "worker.h"

namespace gf_emulator {

static void on_refused_call(int, siginfo_t* info, void* context) {
    if (loading().answer(*info, context)) return;
    report_alone();
    const bool in_kernel = Worker::exists() && Worker::current().block().inside_fiber();
    const std::string call = name_of_call(info->si_syscall);
    if (!in_kernel && !loading().in_progress()) {
        report().ours(("the emulator made the system call " + call).c_str());
        end_process(exit_code_ours);
    }
    Fault fault{"device_fault", "the candidate made the system call " + call};
    if (in_kernel) {
        Worker& worker = Worker::current();
        fault.block = worker.block().block_index();
        fault.thread = worker.fiber().thread_index;
        fault.site = worker.fiber().site;
    } else {
        fault.sentence += " while it was loaded";
    }
    report().fault(fault);
    end_process(exit_code_crash);
}

void catch_refused_calls() {
    struct sigaction action{};
    action.sa_sigaction = on_refused_call;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSYS, &action, nullptr);
}

}  // namespace gf_emulator
