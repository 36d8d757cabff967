#include "sandbox.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "call_filter.h"
#include "own_calls.h"

namespace gf_emulator {

// --- files: Landlock ---
// Source of calls, rights and versions: the kernel's Documentation/userspace-api/landlock.rst. They are written here
// because the installed header may be older than the kernel.

namespace {

// These numbers are the same on all processors.
constexpr long call_close_range = 436, call_create_ruleset = 444, call_add_rule = 445, call_restrict_self = 446;
constexpr unsigned ask_version = 1;
constexpr int rule_path_beneath = 1;

struct Ruleset {
    std::uint64_t files = 0, network = 0, scoped = 0;
};
struct __attribute__((packed)) PathRule {
    std::uint64_t rights;
    std::int32_t beneath;
};

constexpr std::uint64_t may_execute = 1, may_write = 1 << 1, may_read = 1 << 2, may_make_file = 1 << 8,
                        may_truncate = 1 << 14;
constexpr std::uint64_t of_a_file = may_execute | may_write | may_read | may_truncate;

// What version `version` of Landlock can refuse.
Ruleset refusable(int version) {
    Ruleset all;
    all.files = (1 << 13) - 1;
    if (version >= 2) all.files |= 1 << 13;  // a file into another folder
    if (version >= 3) all.files |= may_truncate;
    if (version >= 4) all.network |= 1 | 2;  // to bind and connect TCP
    if (version >= 5) all.files |= 1 << 15;  // ioctl of devices
    if (version >= 6) all.scoped |= 1 | 2;   // abstract sockets and signals of others
    if (version >= 9) all.files |= 1 << 16;  // sockets with a path
    return all;
}

void allow_below(int rules, const std::string& path, std::uint64_t rights) {
    const int at = open(path.c_str(), O_PATH | O_CLOEXEC);
    if (at < 0) return;
    struct stat what;
    if (fstat(at, &what) != 0 || !S_ISDIR(what.st_mode)) rights &= of_a_file;
    const PathRule rule{rights, at};
    syscall(call_add_rule, rules, rule_path_beneath, &rule, 0);
    close(at);
}

}  // namespace

void confine_files(const std::vector<std::string>& writable, const std::vector<std::string>& readable) {
    const int version = int(syscall(call_create_ruleset, nullptr, 0, ask_version));
    if (version < 1) return;
    const Ruleset handled = refusable(version);
    // An older kernel takes a longer description whose rest is zero.
    const int rules = int(syscall(call_create_ruleset, &handled, sizeof handled, 0));
    if (rules < 0) return;
    const std::uint64_t read = may_read | may_execute;
    const std::uint64_t write = (may_write | may_make_file | may_truncate) & handled.files;
    for (const std::string& path : readable) allow_below(rules, path, read);
    for (const std::string& path : writable) allow_below(rules, path, read | write);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    syscall(call_restrict_self, rules, 0);
    close(rules);
}

// --- the process ---

void drop_capabilities() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3]{};
    syscall(SYS_capset, &header, none);
    // Other processes of this user neither trace this one nor read its memory.
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

void keep_descriptors(int first, int second) {
    const int last = 1 << 16;
    const int low = std::min(first, second), high = std::max(first, second);
    const auto close_all = [&](int from, int to) {
        if (from > to || syscall(call_close_range, from, to, 0) == 0) return;
        for (int descriptor = from; descriptor <= std::min(to, last); descriptor++) close(descriptor);
    };
    close_all(0, low - 1);
    close_all(low + 1, high - 1);
    close_all(high + 1, 0x7fffffff);
}

static void limit(int resource, rlim_t value) {
    const rlimit both{value, value};
    setrlimit(resource, &both);
}

void limit_resources(unsigned long long data_bytes, unsigned long long address_bytes, unsigned long long cpu_s) {
    limit(RLIMIT_DATA, data_bytes);
    limit(RLIMIT_AS, address_bytes);
    limit(RLIMIT_CPU, cpu_s);
    for (const int resource : {RLIMIT_CORE, RLIMIT_FSIZE, RLIMIT_LOCKS, RLIMIT_MEMLOCK, RLIMIT_MSGQUEUE, RLIMIT_NICE,
                               RLIMIT_RTPRIO})
        limit(resource, 0);
}

void limit_signals() { limit(RLIMIT_SIGPENDING, 0); }

void limit_descriptors(unsigned long long end, unsigned long long most) {
    const rlimit both{end, most};
    setrlimit(RLIMIT_NOFILE, &both);
}

// --- system calls: seccomp ---

namespace {

constexpr std::uint32_t anonymous = MAP_ANONYMOUS, writable_pages = PROT_WRITE, code_pages = PROT_EXEC;
constexpr std::uint32_t data_pages = PROT_READ | PROT_WRITE;

struct CallList {
    std::vector<AllowedCall> calls;
    CallCondition not_vault;

    void any(int number) { calls.push_back({number, {}}); }
    void when(int number, std::vector<CallCondition> conditions) {
        calls.push_back({number, std::move(conditions)});
    }
    // By own_call only.
    void own(int number, std::vector<CallCondition> conditions) {
        if (const void* place = own_call_address())
            for (const CallCondition& condition : called_before(place)) conditions.push_back(condition);
        when(number, std::move(conditions));
    }
};

// Memory: anonymous pages that hold no code. Freed memory goes back to the system by madvise.
void add_memory(CallList& list) {
    list.when(SYS_mmap, {argument_has(3, anonymous), argument_lacks(2, code_pages), list.not_vault});
    list.when(SYS_munmap, {list.not_vault});
    list.when(SYS_mprotect, {argument_lacks(2, ~data_pages), list.not_vault});
    list.own(SYS_mprotect, {argument_lacks(2, ~data_pages)});
    for (const int advice : {MADV_DONTNEED, MADV_FREE, MADV_HUGEPAGE, MADV_NOHUGEPAGE})
        list.when(SYS_madvise, {argument_is(2, unsigned(advice)), list.not_vault});
    list.any(SYS_brk);
}

// The dynamic linker's, of the library's file. The linker closes it, and no other can then have its number.
void add_loading(CallList& list, unsigned library) {
    const CallCondition of_library = argument_is(4, library);
    list.when(SYS_mmap, {of_library, argument_lacks(2, code_pages), list.not_vault});
    list.when(SYS_mmap, {of_library, argument_lacks(2, writable_pages), list.not_vault});
    for (const int number : {SYS_read, SYS_pread64, SYS_fstat, SYS_close})
        list.when(number, {argument_is(0, library)});
}

}  // namespace

bool refuse_calls(int report, int library, unsigned vault_half) {
    CallList list;
    list.not_vault = upper_half_is_not(0, vault_half ? vault_half : ~0u);
    for (const int number : {SYS_futex, SYS_clock_gettime, SYS_sched_yield, SYS_rt_sigreturn, SYS_restart_syscall})
        list.any(number);
    add_memory(list);
    add_loading(list, unsigned(library));
    list.own(SYS_write, {argument_is(0, unsigned(report))});
    list.own(SYS_exit_group, {});
    // abort(), whose signal is reported as such.
    for (const int number : {SYS_getpid, SYS_gettid, SYS_rt_sigprocmask}) list.any(number);
    list.when(SYS_tgkill, {argument_is(0, unsigned(getpid())), argument_is(2, SIGABRT)});
    return allow_only(list.calls);
}

}  // namespace gf_emulator
