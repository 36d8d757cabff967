#include "sandbox.h"

#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#if __has_include(<linux/landlock.h>)
#include <linux/landlock.h>
#endif

namespace gf_emulator {

namespace {

#if defined(__x86_64__)
constexpr unsigned own_architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr unsigned own_architecture = AUDIT_ARCH_AARCH64;
#else
constexpr unsigned own_architecture = 0;
#endif

// System calls that a kernel does not need; each fails with EPERM.
constexpr int refused_calls[] = {
    SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_execve, SYS_execveat, SYS_clone, SYS_clone3, SYS_ptrace, SYS_process_vm_readv,
    SYS_process_vm_writev, SYS_unshare, SYS_setns, SYS_mount, SYS_umount2, SYS_chroot, SYS_keyctl, SYS_add_key,
    SYS_bpf, SYS_perf_event_open, SYS_fchmod, SYS_fchmodat, SYS_fchown, SYS_fchownat, SYS_reboot,
    SYS_init_module, SYS_finit_module, SYS_kexec_load, SYS_setuid, SYS_setgid, SYS_prlimit64, SYS_setrlimit,
    SYS_io_uring_setup, SYS_memfd_create,
#ifdef SYS_fork
    SYS_fork, SYS_vfork, SYS_chmod, SYS_chown,
#endif
#ifdef SYS_pidfd_open
    SYS_pidfd_open, SYS_pidfd_getfd,
#endif
};

}  // namespace

void refuse_calls() {
    if (!own_architecture) return;
    std::vector<sock_filter> filter;
    const auto load = [&](std::size_t offset) { filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, unsigned(offset))); };
    const auto answer = [&](unsigned with) { filter.push_back(BPF_STMT(BPF_RET | BPF_K, with)); };
    const auto when = [&](unsigned short test, unsigned value, unsigned char skip_true, unsigned char skip_false) {
        filter.push_back(BPF_JUMP(static_cast<unsigned short>(BPF_JMP | test | BPF_K), value, skip_true, skip_false));
    };
    const unsigned no = SECCOMP_RET_ERRNO | EPERM;
    const std::size_t number = offsetof(seccomp_data, nr), argument = offsetof(seccomp_data, args);
    load(offsetof(seccomp_data, arch));
    when(BPF_JEQ, own_architecture, 1, 0);
    answer(no);
    load(number);
    when(BPF_JGE, 0x40000000u, 0, 1);  // x32 calls by other numbers
    answer(no);
    for (const int call : refused_calls) {
        when(BPF_JEQ, unsigned(call), 0, 1);
        answer(no);
    }
    for (const int call : {SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigqueueinfo}) {
        when(BPF_JEQ, unsigned(call), 0, 4);
        load(argument);
        when(BPF_JEQ, unsigned(getpid()), 1, 0);
        answer(no);
        answer(SECCOMP_RET_ALLOW);
    }
    answer(SECCOMP_RET_ALLOW);
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

#ifdef LANDLOCK_CREATE_RULESET_VERSION

namespace {

void allow(int rules, const std::string& path, std::uint64_t rights) {
    const int at = open(path.c_str(), O_PATH | O_CLOEXEC);
    if (at < 0) return;
    struct stat what;
    const bool is_folder = fstat(at, &what) == 0 && S_ISDIR(what.st_mode);
    if (!is_folder) rights &= LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_EXECUTE;
    landlock_path_beneath_attr rule{};
    rule.allowed_access = rights;
    rule.parent_fd = at;
    syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    close(at);
}

}  // namespace

// Source of the calls: landlock(7). Rights of its first version, which every later one has.
void confine_files(const std::vector<std::string>& writable, const std::vector<std::string>& readable) {
    landlock_ruleset_attr handled{};
    handled.handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
    const int rules = int(syscall(SYS_landlock_create_ruleset, &handled, sizeof handled.handled_access_fs, 0));
    if (rules < 0) return;
    const std::uint64_t read = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_EXECUTE;
    for (const std::string& path : readable) allow(rules, path, read);
    for (const std::string& path : writable)
        allow(rules, path, read | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    syscall(SYS_landlock_restrict_self, rules, 0);
    close(rules);
}

#else

void confine_files(const std::vector<std::string>&, const std::vector<std::string>&) {}

#endif

std::string folder_of(const std::string& path) {
    const std::size_t end = path.rfind('/');
    return end == std::string::npos ? "." : path.substr(0, end);
}

}  // namespace gf_emulator
