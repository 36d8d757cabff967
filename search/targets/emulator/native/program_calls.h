// The system calls that gf-confine allows a program with its own `main`: memory, files in its folder, threads and
// clocks. Every other call fails, so this process starts no other, and changes nothing but the contents of its files.
#pragma once
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>

constexpr int program_calls[] = {
    SYS_read, SYS_write, SYS_pread64, SYS_pwrite64, SYS_readv, SYS_writev, SYS_lseek, SYS_close, SYS_fstat, SYS_ftruncate,
    SYS_fsync, SYS_fdatasync, SYS_dup, SYS_dup3, SYS_flock, SYS_getdents64, SYS_getcwd, SYS_umask, SYS_newfstatat, SYS_statx,
    SYS_faccessat, 439,  // faccessat2
    SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise, SYS_brk, SYS_msync, SYS_mincore,
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigpending, SYS_rt_sigtimedwait, SYS_rt_sigsuspend,
    SYS_sigaltstack, SYS_restart_syscall,
    SYS_sendmsg,  // by gf-confine, of the descriptor of its requests; the program itself has no socket
    SYS_execve,   // of the program itself, which can execute no other file
    SYS_exit, SYS_exit_group, SYS_wait4, SYS_waitid,
    SYS_futex, SYS_set_robust_list, SYS_set_tid_address, SYS_membarrier, SYS_sched_yield, SYS_sched_getaffinity,
    SYS_sched_getparam, SYS_sched_getscheduler, SYS_sched_get_priority_max, SYS_sched_get_priority_min, SYS_getcpu,
#ifdef SYS_rseq
    SYS_rseq,
#endif
    SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_getitimer, SYS_setitimer,
    SYS_times, SYS_getrusage, SYS_sysinfo, SYS_uname, SYS_ppoll, SYS_pselect6, SYS_getrandom, SYS_prctl,
    SYS_getpid, SYS_getppid, SYS_gettid, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid,
#ifdef SYS_open
    SYS_creat, SYS_stat, SYS_lstat, SYS_access, SYS_dup2, SYS_getdents, SYS_poll, SYS_select, SYS_pause, SYS_alarm, SYS_time,
    SYS_arch_prctl, SYS_getrlimit,
#endif
};
// Calls that depend on the lowest 32 bits of an argument: allowed where `bits` are all clear, or for clone where one is set.
struct ArgumentCall {
    int number, argument;
    unsigned bits;
    bool needs_bits;
};
constexpr ArgumentCall argument_calls[] = {
    {SYS_clone, 0, CLONE_THREAD, true},
    {SYS_openat, 2, O_TMPFILE & ~O_DIRECTORY, false},  // a file without a name, which no quota would count
    {SYS_prlimit64, 0, ~0u, false},                    // of this process
    {SYS_fcntl, 1, ~7u, false},                        // no F_SETOWN, which lets the kernel signal another process
#ifdef SYS_open
    {SYS_open, 1, O_TMPFILE & ~O_DIRECTORY, false},
#endif
};
