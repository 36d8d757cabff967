// gf-confine CPU_S MEMORY_BYTES FILE_BYTES (-r|-w PATH)... (--|--alone) PROGRAM ARGUMENT...
//
// Runs a program, and what it starts, with limits: it reads only below the paths after -r and -w, writes
// only below those after -w, reaches no network, and signals nobody outside. Three layers, each of which
// holds where the kernel has it: Landlock decides, seccomp refuses calls, and a supervisor answers a
// request for any other file with "no such file". Without the supervisor a compiler's message would tell
// whether a forbidden file exists. Sources: landlock(7), seccomp(2), seccomp_unotify(2).
//
// With --alone the program is not trusted at all. It may make only the calls of program_calls.h, so it starts no
// process, and it removes and renames no file: a file without a name would count in no quota.
#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program_calls.h"

namespace {

#if defined(__x86_64__)
constexpr unsigned own_architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr unsigned own_architecture = AUDIT_ARCH_AARCH64;
#else
constexpr unsigned own_architecture = 0;
#endif

constexpr int most_paths = 128;

struct Places {
    const char* readable[most_paths];
    const char* writable[most_paths];
    int readable_count = 0, writable_count = 0;
};

// Landlock's interface up to version 6, spelt out: older headers lack its later members.
struct Handled {
    std::uint64_t files, network, scopes;
};
struct __attribute__((packed)) BeneathPath {
    std::uint64_t rights;
    std::int32_t folder;
};
constexpr long landlock_create_ruleset = 444, landlock_add_rule = 445, landlock_restrict_self = 446;
constexpr std::uint64_t execute = 1, write_file = 2, read_file = 4, read_folder = 8;
constexpr std::uint64_t remove_file = 1 << 5, make_file = 1 << 8, truncate_file = 1 << 14;

[[noreturn]] void stop(const char* problem) {
    std::fprintf(stderr, "gf-confine: %s: %s\n", problem, std::strerror(errno));
    std::_Exit(127);
}

int landlock_version() {
    const long version = syscall(landlock_create_ruleset, nullptr, 0, 1);
    return version < 0 ? 0 : int(version);
}

void allow(int rules, const char* path, std::uint64_t rights) {
    const int place = open(path, O_PATH | O_CLOEXEC);
    if (place < 0) return;  // a folder that does not exist needs no rule
    struct stat status;
    if (fstat(place, &status) == 0 && !S_ISDIR(status.st_mode)) rights &= execute | write_file | read_file | truncate_file;
    const BeneathPath rule{rights, place};
    syscall(landlock_add_rule, rules, 1, &rule, 0);
    close(place);
}

void confine_files(const Places& places, bool alone) {
    const int version = landlock_version();
    if (!version) return;
    const int rights_of_version[] = {13, 14, 15, 15, 16};
    const std::uint64_t files = (1u << rights_of_version[version < 5 ? version - 1 : 4]) - 1;
    const Handled handled{files, version >= 4 ? 3u : 0u, version >= 6 ? 3u : 0u};
    const std::size_t size = version < 4 ? 8 : version < 6 ? 16 : 24;
    const int rules = int(syscall(landlock_create_ruleset, &handled, size, 0));
    if (rules < 0) stop("no Landlock rules");
    const std::uint64_t read = read_file | read_folder;
    const std::uint64_t write = write_file | make_file | (truncate_file & files) | (alone ? 0 : remove_file);
    for (int i = 0; i < places.readable_count; ++i) allow(rules, places.readable[i], read | execute);
    for (int i = 0; i < places.writable_count; ++i) allow(rules, places.writable[i], read | write);
    if (syscall(landlock_restrict_self, rules, 0) != 0) stop("Landlock");
    close(rules);
}

// Calls that no compiler needs; each fails with EPERM.
constexpr int refused_calls[] = {
    SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_listen, SYS_sendto, SYS_ptrace, SYS_process_vm_readv,
    SYS_process_vm_writev, SYS_unshare, SYS_setns, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_keyctl,
    SYS_add_key, SYS_request_key, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_reboot, SYS_swapon, SYS_swapoff,
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_setuid, SYS_setgid, SYS_setreuid,
    SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setgroups, SYS_setfsuid, SYS_setfsgid, SYS_capset, SYS_setsid,
    SYS_setpgid, SYS_memfd_create, SYS_shmget, SYS_shmat, SYS_shmctl, SYS_msgget, SYS_msgsnd, SYS_semget, SYS_semop,
    SYS_mq_open, SYS_setpriority, SYS_sched_setaffinity, SYS_sched_setscheduler, SYS_sched_setparam, SYS_sched_setattr,
    SYS_ioprio_set, SYS_sethostname, SYS_setdomainname, SYS_settimeofday, SYS_clock_settime, SYS_adjtimex, SYS_acct,
    SYS_quotactl, SYS_name_to_handle_at, SYS_open_by_handle_at, SYS_fchown, SYS_fchownat, SYS_seccomp,
    425, 426, 427,                 // io_uring: its calls would pass the filter
    428, 429, 430, 431, 432, 442,  // the newer calls of mount
    424, 434, 438, 440,            // pidfd_send_signal, pidfd_open, pidfd_getfd, process_madvise
    SYS_mkdirat, SYS_mknodat, SYS_symlinkat, SYS_linkat,  // the quota looks at plain files in one folder
#ifdef SYS_chown
    SYS_chown, SYS_lchown, SYS_mkdir, SYS_mknod, SYS_symlink, SYS_link,
#endif
};
// Calls from here on were added after Landlock. Programs fall back to older ones.
constexpr unsigned newer_calls = 443;
constexpr unsigned first_new_call = 424;  // from here on, all machines have the same numbers
// Signals to others; Landlock's scope refuses them from version 6 on.
constexpr int signal_calls[] = {SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo};

// A call with a path that the supervisor judges, and the positions of its folder and path.
struct PathCall {
    int number, folder, path;
};
constexpr PathCall path_calls[] = {
#ifdef SYS_open
    {SYS_open, -1, 0}, {SYS_stat, -1, 0}, {SYS_lstat, -1, 0}, {SYS_access, -1, 0},
#endif
    {SYS_openat, 0, 1}, {SYS_newfstatat, 0, 1}, {SYS_statx, 0, 1}, {SYS_faccessat, 0, 1}, {439, 0, 1},
};

class Filter {
public:
    Filter() {
        load(offsetof(seccomp_data, arch));
        when(BPF_JEQ, own_architecture, 1, 0);
        answer(refused);
        load(offsetof(seccomp_data, nr));
        when(BPF_JGE, 0x40000000u, 0, 1);  // x32 calls by other numbers
        answer(refused);
    }
    void from(unsigned call, unsigned with) {
        when(BPF_JGE, call, 0, 1);
        answer(with);
    }
    void on(int call, unsigned with) {
        when(BPF_JEQ, unsigned(call), 0, 1);
        answer(with);
    }
    void on(const ArgumentCall& call) {
        when(BPF_JEQ, unsigned(call.number), 0, 4);
        load(offsetof(seccomp_data, args) + 8 * std::size_t(call.argument));  // the lower half: both machines are little-endian
        when(BPF_JSET, call.bits, 0, 1);
        answer(call.needs_bits ? SECCOMP_RET_ALLOW : refused);
        answer(call.needs_bits ? refused : SECCOMP_RET_ALLOW);
    }
    // A descriptor of the requests to the supervisor with `flags`; -1 when it is not installed.
    int install(unsigned flags, unsigned others = SECCOMP_RET_ALLOW) {
        answer(others);
        const sock_fprog program{count_, steps_};
        return int(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program));
    }
    static constexpr unsigned refused = SECCOMP_RET_ERRNO | EPERM;

private:
    void add(sock_filter step) { steps_[count_++] = step; }
    void load(std::size_t offset) { add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, unsigned(offset))); }
    void answer(unsigned with) { add(BPF_STMT(BPF_RET | BPF_K, with)); }
    void when(unsigned short test, unsigned value, unsigned char skip_true, unsigned char skip_false) {
        add(BPF_JUMP(static_cast<unsigned short>(BPF_JMP | test | BPF_K), value, skip_true, skip_false));
    }
    sock_filter steps_[512];
    unsigned short count_ = 0;
};

bool refuse_compiler_calls() {
    Filter calls;
    for (const int call : refused_calls) calls.on(call, Filter::refused);
    calls.from(newer_calls, SECCOMP_RET_ERRNO | ENOSYS);
    calls.on(437, SECCOMP_RET_ERRNO | ENOSYS);  // openat2: programs fall back to openat, which is supervised
    if (landlock_version() < 6)
        for (const int call : signal_calls) calls.on(call, Filter::refused);
    return calls.install(0) == 0;
}

bool allow_program_calls() {
    Filter calls;
    for (const int call : program_calls) calls.on(call, SECCOMP_RET_ALLOW);
    if (landlock_version() >= 6) calls.on(SYS_tgkill, SECCOMP_RET_ALLOW);  // `abort`; its scope is this process
    for (const ArgumentCall& call : argument_calls) calls.on(call);
    calls.on(SYS_ioctl, SECCOMP_RET_ERRNO | ENOTTY);
    calls.from(first_new_call, SECCOMP_RET_ERRNO | ENOSYS);  // such as clone3: programs fall back to older ones
    return calls.install(0, Filter::refused) == 0;
}

// The descriptor of the requests to the supervisor; -1: the kernel, or a container's filter, gives none.
int refuse_calls(bool supervised, bool alone) {
    if (!own_architecture) return -1;
    int requests = -1;
    if (supervised) {
        Filter paths;
        for (const PathCall& call : path_calls) paths.on(call.number, SECCOMP_RET_USER_NOTIF);
        requests = paths.install(SECCOMP_FILTER_FLAG_NEW_LISTENER);
    }
    if (!(alone ? allow_program_calls() : refuse_compiler_calls())) stop("seccomp");
    return requests;
}

// `path` without `.`, `..` and double slashes, as an absolute path; false when it is too long.
bool normalised(const char* base, const char* path, char (&result)[2 * PATH_MAX]) {
    char whole[2 * PATH_MAX];
    const int length = path[0] == '/' ? std::snprintf(whole, sizeof whole, "%s", path)
                                      : std::snprintf(whole, sizeof whole, "%s/%s", base, path);
    if (length < 0 || std::size_t(length) >= sizeof whole) return false;
    std::size_t end = 0;
    char* rest = whole;
    while (char* part = strsep(&rest, "/")) {
        if (!*part || !std::strcmp(part, ".")) continue;
        if (!std::strcmp(part, "..")) {
            while (end > 0 && result[--end] != '/') {}
            continue;
        }
        const std::size_t size = std::strlen(part);
        result[end++] = '/';
        std::memcpy(result + end, part, size);
        end += size;
    }
    result[end] = 0;
    return true;
}

// Whether `path` is `place`, lies below it, or is a folder on the way to it.
bool reaches(const char* path, const char* place) {
    const std::size_t size = std::strlen(place), length = std::strlen(path);
    if (length < size) return !std::strncmp(place, path, length) && place[length] == '/';
    return !std::strncmp(path, place, size) && (size == 1 || path[size] == '/' || !path[size]);
}

class Supervisor {
public:
    Supervisor(int requests, const Places& places) : requests_(requests), places_(places) {
        if (!getcwd(work_, sizeof work_)) stop("the current folder");
    }

    // Answer requests until no process of the program is left.
    void serve(pid_t program) {
        while (!is_over(program)) {
            alignas(seccomp_notif) char room[512] = {};
            auto& request = *reinterpret_cast<seccomp_notif*>(room);
            if (ioctl(requests_, SECCOMP_IOCTL_NOTIF_RECV, &request) != 0) continue;  // the caller has died
            alignas(seccomp_notif_resp) char answer_room[512] = {};
            auto& answer = *reinterpret_cast<seccomp_notif_resp*>(answer_room);
            answer.id = request.id;
            if (allows(request))
                answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;  // Landlock decides
            else
                answer.error = -ENOENT;
            ioctl(requests_, SECCOMP_IOCTL_NOTIF_SEND, &answer);
        }
    }

private:
    // Wait for a request; true when there will be none. Older kernels do not tell when the last process
    // has ended, so the program is looked at as well.
    bool is_over(pid_t program) const {
        for (;;) {
            pollfd waited{requests_, POLLIN, 0};
            const int ready = poll(&waited, 1, 100);
            if (ready > 0 && (waited.revents & POLLIN)) return false;
            if (ready > 0) return true;
            siginfo_t ended{};
            if (ready == 0 && waitid(P_PID, id_t(program), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid) return true;
        }
    }
    bool allows(const seccomp_notif& request) const {
        for (const PathCall& call : path_calls) {
            if (call.number != request.data.nr) continue;
            if (call.folder >= 0 && int(request.data.args[call.folder]) != AT_FDCWD) return true;
            char path[PATH_MAX];
            return !read_path(request, request.data.args[call.path], path) || is_within(path);
        }
        return true;
    }
    // The path that the call names. False: it cannot be read, and the kernel decides by itself.
    static bool read_path(const seccomp_notif& request, std::uint64_t address, char (&path)[PATH_MAX]) {
        std::size_t read = 0;
        while (read < sizeof path) {  // up to the end of each page, since the next one may be unmapped
            const std::size_t page = 4096, left = page - (address + read) % page;
            const std::size_t size = left < sizeof path - read ? left : sizeof path - read;
            const iovec to{path + read, size}, from{reinterpret_cast<void*>(address + read), size};
            const ssize_t got = process_vm_readv(pid_t(request.pid), &to, 1, &from, 1, 0);
            if (got <= 0) return false;
            if (std::memchr(path + read, 0, std::size_t(got))) return true;
            read += std::size_t(got);
        }
        return false;
    }
    bool is_within(const char* path) const {
        char whole[2 * PATH_MAX];
        if (!*path || !normalised(work_, path, whole)) return true;
        for (int i = 0; i < places_.readable_count; ++i)
            if (reaches(whole, places_.readable[i])) return true;
        for (int i = 0; i < places_.writable_count; ++i)
            if (reaches(whole, places_.writable[i])) return true;
        return false;
    }
    const int requests_;
    const Places& places_;
    char work_[PATH_MAX];
};

void send_descriptor(int socket, int descriptor) {
    char byte = 0;
    iovec data{&byte, 1};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (descriptor >= 0) {
        message.msg_control = room;
        message.msg_controllen = sizeof room;
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    }
    if (sendmsg(socket, &message, 0) != 1) stop("the supervisor");
}

int received_descriptor(int socket) {
    char byte;
    iovec data{&byte, 1};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_type != SCM_RIGHTS) return -1;
    int descriptor;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
    return descriptor;
}

// A lower limit of the caller's stays.
void limit(int kind, const char* text) {
    rlim_t value = std::strtoull(text, nullptr, 10);
    struct rlimit both{value, value};
    if (getrlimit(static_cast<__rlimit_resource>(kind), &both) == 0) value = std::min(value, both.rlim_max);
    both = {value, value};
    if (setrlimit(static_cast<__rlimit_resource>(kind), &both) != 0) stop("a limit");
}

// End as the program did, so that the caller sees its status or signal.
[[noreturn]] void end_as(int status) {
    if (WIFSIGNALED(status)) {
        std::signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    std::_Exit(WIFEXITED(status) ? WEXITSTATUS(status) : 127);
}

void drop_capabilities() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3]{};
    syscall(SYS_capset, &header, none);
}

[[noreturn]] void become(char** program, const Places& places, bool alone, int socket) {
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) stop("no_new_privs");
    confine_files(places, alone);
    if (alone) drop_capabilities();
    send_descriptor(socket, refuse_calls(true, alone));
    execv(program[0], program);
    stop(program[0]);
}

}  // namespace

int main(int count, char** words) {
    static Places places;
    int next = 4;
    for (; next + 1 < count && std::strncmp(words[next], "--", 2); next += 2) {
        const bool writes = !std::strcmp(words[next], "-w");
        int& number = writes ? places.writable_count : places.readable_count;
        if (number == most_paths) return 126;
        (writes ? places.writable : places.readable)[number++] = words[next + 1];
    }
    if (next + 1 >= count) return 126;
    limit(RLIMIT_CORE, "0");
    limit(RLIMIT_CPU, words[1]);
    limit(RLIMIT_FSIZE, words[3]);
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) stop("socketpair");
    const pid_t program = fork();
    if (program < 0) stop("fork");
    if (program == 0) {
        limit(RLIMIT_AS, words[2]);
        become(words + next + 1, places, !std::strcmp(words[next], "--alone"), sockets[1]);
    }
    close(sockets[1]);
    const int requests = received_descriptor(sockets[0]);
    if (requests >= 0) Supervisor(requests, places).serve(program);
    int status = 0;
    while (waitpid(program, &status, 0) < 0 && errno == EINTR) {}
    end_as(status);
}
