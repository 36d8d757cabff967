#include "signals.h"

#include <atomic>
#include <csignal>
#include <dlfcn.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "division.h"
#include "global_memory.h"
#include "last_words.h"
#include "loading.h"
#include "memory_map.h"
#include "own_calls.h"
#include "watchdog.h"
#include "worker.h"

namespace gf_emulator {

const void* program_counter(void* context) {
#if defined(__x86_64__)
    return reinterpret_cast<const void*>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
    return reinterpret_cast<const void*>(static_cast<ucontext_t*>(context)->uc_mcontext.pc);
#else
    return nullptr;
#endif
}

bool in_kernel_library(const Worker& worker, const void* address) {
    Dl_info info;
    return address && dladdr(address, &info) && info.dli_fbase == worker.launch().module_base;
}

namespace {

struct Diagnosis {
    const char* kind;
    std::string sentence;
};

Diagnosis diagnose(Worker& worker, int signal_number, int code, const void* address, const void* counter) {
    if (signal_number == SIGFPE) return {"device_fault", "an integer division by zero"};
    if (signal_number == SIGILL || signal_number == SIGTRAP)
        return {"device_fault", "control reached code that the compiler proved unreachable"};
    if (signal_number == SIGABRT) return {"device_fault", "the kernel called abort"};
    if (worker.stacks().in_guard(address))
        return {"device_fault",
                format("a thread's local memory exceeds %zu KiB", StackPool::stack_bytes / 1024)};
    if (signal_number != SIGBUS && address && address == counter)
        return {"device_fault", format("a call to address %p, where there is no code", address)};
    // The processor reports no address for a non-canonical one, which no page can have.
    if (code == SI_KERNEL)
        return {"device_fault", "an access to an impossible address, far from every buffer"};
    const std::string shared = worker.cluster().describe(address);
    if (!shared.empty()) return {"out_of_bounds", "an access " + shared};
    const std::string global = worker.launch().global->describe(address);
    if (!global.empty()) return {"out_of_bounds", "an access " + global};
    if (std::uintptr_t(address) < 65536) return {"device_fault", "an access through a null pointer"};
    return {"device_fault", format("an access to address %p, far from every buffer", address)};
}

bool follows_a_call(const unsigned char* code) { return code[-5] == 0xe8 || (code[-6] == 0xff && code[-5] == 0x15); }

// Where the kernel's code called what met the end of its thread's stack: the first return address into the kernel's
// library that the stack holds. Null where none is near.
[[maybe_unused]] const void* calling_site([[maybe_unused]] Worker& worker, [[maybe_unused]] void* context) {
#if defined(__x86_64__)
    constexpr std::size_t words_looked_at = 4096;
    auto top = std::uintptr_t(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RSP]) & ~std::uintptr_t(7);
    for (std::size_t i = 0; i < words_looked_at; i++, top += sizeof(void*)) {
        const auto place = reinterpret_cast<void* const*>(top);
        if (worker.stacks().in_guard(place)) continue;
        if (!worker.stacks().contains(place)) return nullptr;
        if (in_kernel_library(worker, *place) && follows_a_call(static_cast<const unsigned char*>(*place))) return *place;
    }
#endif
    return nullptr;
}

// Of a constructor of the kernel library, or of its relocation.
[[noreturn]] void crash_in_loading(int signal_number) {
    report().fault({"device_fault", format("the library was stopped by signal %d while it was loaded", signal_number)});
    end_process(exit_code_crash);
}

void on_crash(int signal_number, siginfo_t* info, void* context) {
    if (signal_number == SIGFPE && Worker::exists() && in_kernel_library(Worker::current(), program_counter(context)) &&
        complete_division(context))
        return;
    if (signal_number == SIGTRAP && is_watchdog_step(context)) return;
    report_alone();
    if (loading().in_progress()) crash_in_loading(signal_number);
    if (!Worker::exists() || !Worker::current().block().inside_fiber()) {
        report().ours("crash");
        end_process(exit_code_ours);
    }
    Worker& worker = Worker::current();
    const char* counter = static_cast<const char*>(program_counter(context));
    const Diagnosis diagnosis = diagnose(worker, signal_number, info->si_code, info->si_addr, counter);
    Fault fault{diagnosis.kind, diagnosis.sentence, worker.block().block_index(),
                worker.fiber().thread_index};
    // Sites are return addresses, so the faulting instruction is named by the byte after its first.
    fault.site = in_kernel_library(worker, counter) ? counter + 1 : worker.fiber().site;
    if (!in_kernel_library(worker, counter) && worker.stacks().in_guard(info->si_addr))
        fault.site = calling_site(worker, context);
    report().fault(fault);
    end_process(exit_code_crash);
}

}  // namespace

void report_alone() {
    static std::atomic<bool> crashed{false};
    static thread_local bool reports = false;
    if (reports) end_process(exit_code_twice);
    if (crashed.exchange(true)) {
        int never = 0;
        for (;;) syscall(SYS_futex, &never, 128 /* FUTEX_WAIT_PRIVATE */, 0, nullptr);
    }
    reports = true;
    allocate_from_reserve();
}

void catch_crashes() {
    struct sigaction action{};
    action.sa_sigaction = on_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (const int signal_number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT})
        sigaction(signal_number, &action, nullptr);
}

void give_thread_crash_stack() {
    constexpr std::size_t bytes = 64 * 1024;
    stack_t stack{};
    stack.ss_sp = map_pages(bytes);
    stack.ss_size = bytes;
    sigaltstack(&stack, nullptr);
}

}  // namespace gf_emulator
