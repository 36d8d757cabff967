#include "loading.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "memory_map.h"
#include "report.h"

namespace gf_emulator {

Loading& loading() {
    static Loading instance;
    return instance;
}

namespace {

#if defined(__x86_64__)
long call_argument(const ucontext_t& state, int number) {
    constexpr int registers[] = {REG_RDI, REG_RSI, REG_RDX, REG_R10};
    return long(state.uc_mcontext.gregs[registers[number]]);
}
void set_answer(ucontext_t& state, long value) { state.uc_mcontext.gregs[REG_RAX] = value; }
#elif defined(__aarch64__)
long call_argument(const ucontext_t& state, int number) { return long(state.uc_mcontext.regs[number]); }
void set_answer(ucontext_t& state, long value) { state.uc_mcontext.regs[0] = (unsigned long long)(value); }
#else
long call_argument(const ucontext_t&, int) { return 0; }
void set_answer(ucontext_t&, long) {}
#endif

bool is_open(int number) {
#ifdef SYS_open
    if (number == SYS_open) return true;
#endif
    return number == SYS_openat;
}

bool is_stat_at(int number) {
#ifdef SYS_newfstatat
    return number == SYS_newfstatat;
#else
    (void)number;
    return false;
#endif
}

}  // namespace

void Loading::open(const std::string& path) {
    path_ = path;
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) give_up("the kernel library cannot be opened");
    file_ = map_file(descriptor_, false);
}

void* Loading::load() {
    in_progress_ = true;
    report().load();
    void* library = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    in_progress_ = false;
    if (!library) give_up(dlerror());
    return library;
}

// The first open is the linker's, since no code of the library has run before it. The linker then asks for the
// descriptor's status (glibc until 2.38 with newfstatat and an empty path, which the filter cannot see).
bool Loading::answer(const siginfo_t& refused, void* context) {
    if (!in_progress_) return false;
    ucontext_t& state = *static_cast<ucontext_t*>(context);
    if (is_open(refused.si_syscall) && !answered_) {
        answered_ = true;
        set_answer(state, descriptor_);
        return true;
    }
    if (!is_stat_at(refused.si_syscall) || !answered_ || call_argument(state, 0) != descriptor_) return false;
    const char* path = reinterpret_cast<const char*>(call_argument(state, 1));
    if (path && *path) return false;
    const long status = syscall(SYS_fstat, descriptor_, call_argument(state, 2));
    set_answer(state, status < 0 ? -errno : status);
    return true;
}

}  // namespace gf_emulator
