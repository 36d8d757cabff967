#include "call_names.h"

#include <sys/syscall.h>

#include "report.h"

namespace gf_emulator {

namespace {

struct CallName {
    int number;
    const char* name;
};

constexpr CallName call_names[] = {
#ifdef SYS_read
    {SYS_read, "read"},
#endif
#ifdef SYS_write
    {SYS_write, "write"},
#endif
#ifdef SYS_open
    {SYS_open, "open"},
#endif
#ifdef SYS_close
    {SYS_close, "close"},
#endif
#ifdef SYS_stat
    {SYS_stat, "stat"},
#endif
#ifdef SYS_fstat
    {SYS_fstat, "fstat"},
#endif
#ifdef SYS_lstat
    {SYS_lstat, "lstat"},
#endif
#ifdef SYS_poll
    {SYS_poll, "poll"},
#endif
#ifdef SYS_lseek
    {SYS_lseek, "lseek"},
#endif
#ifdef SYS_mmap
    {SYS_mmap, "mmap"},
#endif
#ifdef SYS_mprotect
    {SYS_mprotect, "mprotect"},
#endif
#ifdef SYS_munmap
    {SYS_munmap, "munmap"},
#endif
#ifdef SYS_brk
    {SYS_brk, "brk"},
#endif
#ifdef SYS_rt_sigaction
    {SYS_rt_sigaction, "rt_sigaction"},
#endif
#ifdef SYS_rt_sigprocmask
    {SYS_rt_sigprocmask, "rt_sigprocmask"},
#endif
#ifdef SYS_rt_sigreturn
    {SYS_rt_sigreturn, "rt_sigreturn"},
#endif
#ifdef SYS_ioctl
    {SYS_ioctl, "ioctl"},
#endif
#ifdef SYS_pread64
    {SYS_pread64, "pread64"},
#endif
#ifdef SYS_pwrite64
    {SYS_pwrite64, "pwrite64"},
#endif
#ifdef SYS_readv
    {SYS_readv, "readv"},
#endif
#ifdef SYS_writev
    {SYS_writev, "writev"},
#endif
#ifdef SYS_access
    {SYS_access, "access"},
#endif
#ifdef SYS_pipe
    {SYS_pipe, "pipe"},
#endif
#ifdef SYS_select
    {SYS_select, "select"},
#endif
#ifdef SYS_sched_yield
    {SYS_sched_yield, "sched_yield"},
#endif
#ifdef SYS_mremap
    {SYS_mremap, "mremap"},
#endif
#ifdef SYS_msync
    {SYS_msync, "msync"},
#endif
#ifdef SYS_mincore
    {SYS_mincore, "mincore"},
#endif
#ifdef SYS_madvise
    {SYS_madvise, "madvise"},
#endif
#ifdef SYS_shmget
    {SYS_shmget, "shmget"},
#endif
#ifdef SYS_shmat
    {SYS_shmat, "shmat"},
#endif
#ifdef SYS_shmctl
    {SYS_shmctl, "shmctl"},
#endif
#ifdef SYS_dup
    {SYS_dup, "dup"},
#endif
#ifdef SYS_dup2
    {SYS_dup2, "dup2"},
#endif
#ifdef SYS_pause
    {SYS_pause, "pause"},
#endif
#ifdef SYS_nanosleep
    {SYS_nanosleep, "nanosleep"},
#endif
#ifdef SYS_getitimer
    {SYS_getitimer, "getitimer"},
#endif
#ifdef SYS_alarm
    {SYS_alarm, "alarm"},
#endif
#ifdef SYS_setitimer
    {SYS_setitimer, "setitimer"},
#endif
#ifdef SYS_getpid
    {SYS_getpid, "getpid"},
#endif
#ifdef SYS_sendfile
    {SYS_sendfile, "sendfile"},
#endif
#ifdef SYS_socket
    {SYS_socket, "socket"},
#endif
#ifdef SYS_connect
    {SYS_connect, "connect"},
#endif
#ifdef SYS_accept
    {SYS_accept, "accept"},
#endif
#ifdef SYS_sendto
    {SYS_sendto, "sendto"},
#endif
#ifdef SYS_recvfrom
    {SYS_recvfrom, "recvfrom"},
#endif
#ifdef SYS_sendmsg
    {SYS_sendmsg, "sendmsg"},
#endif
#ifdef SYS_recvmsg
    {SYS_recvmsg, "recvmsg"},
#endif
#ifdef SYS_shutdown
    {SYS_shutdown, "shutdown"},
#endif
#ifdef SYS_bind
    {SYS_bind, "bind"},
#endif
#ifdef SYS_listen
    {SYS_listen, "listen"},
#endif
#ifdef SYS_socketpair
    {SYS_socketpair, "socketpair"},
#endif
#ifdef SYS_clone
    {SYS_clone, "clone"},
#endif
#ifdef SYS_fork
    {SYS_fork, "fork"},
#endif
#ifdef SYS_vfork
    {SYS_vfork, "vfork"},
#endif
#ifdef SYS_execve
    {SYS_execve, "execve"},
#endif
#ifdef SYS_exit
    {SYS_exit, "exit"},
#endif
#ifdef SYS_wait4
    {SYS_wait4, "wait4"},
#endif
#ifdef SYS_kill
    {SYS_kill, "kill"},
#endif
#ifdef SYS_uname
    {SYS_uname, "uname"},
#endif
#ifdef SYS_semget
    {SYS_semget, "semget"},
#endif
#ifdef SYS_semop
    {SYS_semop, "semop"},
#endif
#ifdef SYS_semctl
    {SYS_semctl, "semctl"},
#endif
#ifdef SYS_shmdt
    {SYS_shmdt, "shmdt"},
#endif
#ifdef SYS_msgget
    {SYS_msgget, "msgget"},
#endif
#ifdef SYS_msgsnd
    {SYS_msgsnd, "msgsnd"},
#endif
#ifdef SYS_msgrcv
    {SYS_msgrcv, "msgrcv"},
#endif
#ifdef SYS_msgctl
    {SYS_msgctl, "msgctl"},
#endif
#ifdef SYS_fcntl
    {SYS_fcntl, "fcntl"},
#endif
#ifdef SYS_flock
    {SYS_flock, "flock"},
#endif
#ifdef SYS_fsync
    {SYS_fsync, "fsync"},
#endif
#ifdef SYS_fdatasync
    {SYS_fdatasync, "fdatasync"},
#endif
#ifdef SYS_truncate
    {SYS_truncate, "truncate"},
#endif
#ifdef SYS_ftruncate
    {SYS_ftruncate, "ftruncate"},
#endif
#ifdef SYS_getdents
    {SYS_getdents, "getdents"},
#endif
#ifdef SYS_getcwd
    {SYS_getcwd, "getcwd"},
#endif
#ifdef SYS_chdir
    {SYS_chdir, "chdir"},
#endif
#ifdef SYS_fchdir
    {SYS_fchdir, "fchdir"},
#endif
#ifdef SYS_rename
    {SYS_rename, "rename"},
#endif
#ifdef SYS_mkdir
    {SYS_mkdir, "mkdir"},
#endif
#ifdef SYS_rmdir
    {SYS_rmdir, "rmdir"},
#endif
#ifdef SYS_creat
    {SYS_creat, "creat"},
#endif
#ifdef SYS_link
    {SYS_link, "link"},
#endif
#ifdef SYS_unlink
    {SYS_unlink, "unlink"},
#endif
#ifdef SYS_symlink
    {SYS_symlink, "symlink"},
#endif
#ifdef SYS_readlink
    {SYS_readlink, "readlink"},
#endif
#ifdef SYS_chmod
    {SYS_chmod, "chmod"},
#endif
#ifdef SYS_fchmod
    {SYS_fchmod, "fchmod"},
#endif
#ifdef SYS_chown
    {SYS_chown, "chown"},
#endif
#ifdef SYS_fchown
    {SYS_fchown, "fchown"},
#endif
#ifdef SYS_lchown
    {SYS_lchown, "lchown"},
#endif
#ifdef SYS_umask
    {SYS_umask, "umask"},
#endif
#ifdef SYS_gettimeofday
    {SYS_gettimeofday, "gettimeofday"},
#endif
#ifdef SYS_getrlimit
    {SYS_getrlimit, "getrlimit"},
#endif
#ifdef SYS_getrusage
    {SYS_getrusage, "getrusage"},
#endif
#ifdef SYS_sysinfo
    {SYS_sysinfo, "sysinfo"},
#endif
#ifdef SYS_times
    {SYS_times, "times"},
#endif
#ifdef SYS_ptrace
    {SYS_ptrace, "ptrace"},
#endif
#ifdef SYS_getuid
    {SYS_getuid, "getuid"},
#endif
#ifdef SYS_syslog
    {SYS_syslog, "syslog"},
#endif
#ifdef SYS_getgid
    {SYS_getgid, "getgid"},
#endif
#ifdef SYS_setuid
    {SYS_setuid, "setuid"},
#endif
#ifdef SYS_setgid
    {SYS_setgid, "setgid"},
#endif
#ifdef SYS_geteuid
    {SYS_geteuid, "geteuid"},
#endif
#ifdef SYS_getegid
    {SYS_getegid, "getegid"},
#endif
#ifdef SYS_setpgid
    {SYS_setpgid, "setpgid"},
#endif
#ifdef SYS_getppid
    {SYS_getppid, "getppid"},
#endif
#ifdef SYS_getpgrp
    {SYS_getpgrp, "getpgrp"},
#endif
#ifdef SYS_setsid
    {SYS_setsid, "setsid"},
#endif
#ifdef SYS_setreuid
    {SYS_setreuid, "setreuid"},
#endif
#ifdef SYS_setregid
    {SYS_setregid, "setregid"},
#endif
#ifdef SYS_getgroups
    {SYS_getgroups, "getgroups"},
#endif
#ifdef SYS_setgroups
    {SYS_setgroups, "setgroups"},
#endif
#ifdef SYS_setresuid
    {SYS_setresuid, "setresuid"},
#endif
#ifdef SYS_setresgid
    {SYS_setresgid, "setresgid"},
#endif
#ifdef SYS_getpgid
    {SYS_getpgid, "getpgid"},
#endif
#ifdef SYS_setfsuid
    {SYS_setfsuid, "setfsuid"},
#endif
#ifdef SYS_setfsgid
    {SYS_setfsgid, "setfsgid"},
#endif
#ifdef SYS_getsid
    {SYS_getsid, "getsid"},
#endif
#ifdef SYS_capget
    {SYS_capget, "capget"},
#endif
#ifdef SYS_capset
    {SYS_capset, "capset"},
#endif
#ifdef SYS_rt_sigpending
    {SYS_rt_sigpending, "rt_sigpending"},
#endif
#ifdef SYS_rt_sigtimedwait
    {SYS_rt_sigtimedwait, "rt_sigtimedwait"},
#endif
#ifdef SYS_rt_sigqueueinfo
    {SYS_rt_sigqueueinfo, "rt_sigqueueinfo"},
#endif
#ifdef SYS_rt_sigsuspend
    {SYS_rt_sigsuspend, "rt_sigsuspend"},
#endif
#ifdef SYS_sigaltstack
    {SYS_sigaltstack, "sigaltstack"},
#endif
#ifdef SYS_utime
    {SYS_utime, "utime"},
#endif
#ifdef SYS_mknod
    {SYS_mknod, "mknod"},
#endif
#ifdef SYS_personality
    {SYS_personality, "personality"},
#endif
#ifdef SYS_statfs
    {SYS_statfs, "statfs"},
#endif
#ifdef SYS_fstatfs
    {SYS_fstatfs, "fstatfs"},
#endif
#ifdef SYS_getpriority
    {SYS_getpriority, "getpriority"},
#endif
#ifdef SYS_setpriority
    {SYS_setpriority, "setpriority"},
#endif
#ifdef SYS_sched_setparam
    {SYS_sched_setparam, "sched_setparam"},
#endif
#ifdef SYS_sched_getparam
    {SYS_sched_getparam, "sched_getparam"},
#endif
#ifdef SYS_sched_setscheduler
    {SYS_sched_setscheduler, "sched_setscheduler"},
#endif
#ifdef SYS_sched_getscheduler
    {SYS_sched_getscheduler, "sched_getscheduler"},
#endif
#ifdef SYS_mlock
    {SYS_mlock, "mlock"},
#endif
#ifdef SYS_munlock
    {SYS_munlock, "munlock"},
#endif
#ifdef SYS_mlockall
    {SYS_mlockall, "mlockall"},
#endif
#ifdef SYS_munlockall
    {SYS_munlockall, "munlockall"},
#endif
#ifdef SYS_pivot_root
    {SYS_pivot_root, "pivot_root"},
#endif
#ifdef SYS_prctl
    {SYS_prctl, "prctl"},
#endif
#ifdef SYS_arch_prctl
    {SYS_arch_prctl, "arch_prctl"},
#endif
#ifdef SYS_setrlimit
    {SYS_setrlimit, "setrlimit"},
#endif
#ifdef SYS_chroot
    {SYS_chroot, "chroot"},
#endif
#ifdef SYS_sync
    {SYS_sync, "sync"},
#endif
#ifdef SYS_acct
    {SYS_acct, "acct"},
#endif
#ifdef SYS_settimeofday
    {SYS_settimeofday, "settimeofday"},
#endif
#ifdef SYS_mount
    {SYS_mount, "mount"},
#endif
#ifdef SYS_umount2
    {SYS_umount2, "umount2"},
#endif
#ifdef SYS_swapon
    {SYS_swapon, "swapon"},
#endif
#ifdef SYS_swapoff
    {SYS_swapoff, "swapoff"},
#endif
#ifdef SYS_reboot
    {SYS_reboot, "reboot"},
#endif
#ifdef SYS_sethostname
    {SYS_sethostname, "sethostname"},
#endif
#ifdef SYS_setdomainname
    {SYS_setdomainname, "setdomainname"},
#endif
#ifdef SYS_iopl
    {SYS_iopl, "iopl"},
#endif
#ifdef SYS_ioperm
    {SYS_ioperm, "ioperm"},
#endif
#ifdef SYS_init_module
    {SYS_init_module, "init_module"},
#endif
#ifdef SYS_delete_module
    {SYS_delete_module, "delete_module"},
#endif
#ifdef SYS_quotactl
    {SYS_quotactl, "quotactl"},
#endif
#ifdef SYS_gettid
    {SYS_gettid, "gettid"},
#endif
#ifdef SYS_readahead
    {SYS_readahead, "readahead"},
#endif
#ifdef SYS_setxattr
    {SYS_setxattr, "setxattr"},
#endif
#ifdef SYS_getxattr
    {SYS_getxattr, "getxattr"},
#endif
#ifdef SYS_listxattr
    {SYS_listxattr, "listxattr"},
#endif
#ifdef SYS_removexattr
    {SYS_removexattr, "removexattr"},
#endif
#ifdef SYS_tkill
    {SYS_tkill, "tkill"},
#endif
#ifdef SYS_time
    {SYS_time, "time"},
#endif
#ifdef SYS_futex
    {SYS_futex, "futex"},
#endif
#ifdef SYS_sched_setaffinity
    {SYS_sched_setaffinity, "sched_setaffinity"},
#endif
#ifdef SYS_sched_getaffinity
    {SYS_sched_getaffinity, "sched_getaffinity"},
#endif
#ifdef SYS_io_setup
    {SYS_io_setup, "io_setup"},
#endif
#ifdef SYS_io_submit
    {SYS_io_submit, "io_submit"},
#endif
#ifdef SYS_epoll_create
    {SYS_epoll_create, "epoll_create"},
#endif
#ifdef SYS_getdents64
    {SYS_getdents64, "getdents64"},
#endif
#ifdef SYS_set_tid_address
    {SYS_set_tid_address, "set_tid_address"},
#endif
#ifdef SYS_restart_syscall
    {SYS_restart_syscall, "restart_syscall"},
#endif
#ifdef SYS_semtimedop
    {SYS_semtimedop, "semtimedop"},
#endif
#ifdef SYS_timer_create
    {SYS_timer_create, "timer_create"},
#endif
#ifdef SYS_timer_settime
    {SYS_timer_settime, "timer_settime"},
#endif
#ifdef SYS_timer_delete
    {SYS_timer_delete, "timer_delete"},
#endif
#ifdef SYS_clock_settime
    {SYS_clock_settime, "clock_settime"},
#endif
#ifdef SYS_clock_gettime
    {SYS_clock_gettime, "clock_gettime"},
#endif
#ifdef SYS_clock_getres
    {SYS_clock_getres, "clock_getres"},
#endif
#ifdef SYS_clock_nanosleep
    {SYS_clock_nanosleep, "clock_nanosleep"},
#endif
#ifdef SYS_exit_group
    {SYS_exit_group, "exit_group"},
#endif
#ifdef SYS_epoll_wait
    {SYS_epoll_wait, "epoll_wait"},
#endif
#ifdef SYS_epoll_ctl
    {SYS_epoll_ctl, "epoll_ctl"},
#endif
#ifdef SYS_tgkill
    {SYS_tgkill, "tgkill"},
#endif
#ifdef SYS_utimes
    {SYS_utimes, "utimes"},
#endif
#ifdef SYS_mbind
    {SYS_mbind, "mbind"},
#endif
#ifdef SYS_set_mempolicy
    {SYS_set_mempolicy, "set_mempolicy"},
#endif
#ifdef SYS_get_mempolicy
    {SYS_get_mempolicy, "get_mempolicy"},
#endif
#ifdef SYS_mq_open
    {SYS_mq_open, "mq_open"},
#endif
#ifdef SYS_mq_unlink
    {SYS_mq_unlink, "mq_unlink"},
#endif
#ifdef SYS_mq_timedsend
    {SYS_mq_timedsend, "mq_timedsend"},
#endif
#ifdef SYS_mq_timedreceive
    {SYS_mq_timedreceive, "mq_timedreceive"},
#endif
#ifdef SYS_mq_notify
    {SYS_mq_notify, "mq_notify"},
#endif
#ifdef SYS_kexec_load
    {SYS_kexec_load, "kexec_load"},
#endif
#ifdef SYS_waitid
    {SYS_waitid, "waitid"},
#endif
#ifdef SYS_add_key
    {SYS_add_key, "add_key"},
#endif
#ifdef SYS_request_key
    {SYS_request_key, "request_key"},
#endif
#ifdef SYS_keyctl
    {SYS_keyctl, "keyctl"},
#endif
#ifdef SYS_ioprio_set
    {SYS_ioprio_set, "ioprio_set"},
#endif
#ifdef SYS_ioprio_get
    {SYS_ioprio_get, "ioprio_get"},
#endif
#ifdef SYS_inotify_init
    {SYS_inotify_init, "inotify_init"},
#endif
#ifdef SYS_migrate_pages
    {SYS_migrate_pages, "migrate_pages"},
#endif
#ifdef SYS_openat
    {SYS_openat, "openat"},
#endif
#ifdef SYS_mkdirat
    {SYS_mkdirat, "mkdirat"},
#endif
#ifdef SYS_mknodat
    {SYS_mknodat, "mknodat"},
#endif
#ifdef SYS_fchownat
    {SYS_fchownat, "fchownat"},
#endif
#ifdef SYS_futimesat
    {SYS_futimesat, "futimesat"},
#endif
#ifdef SYS_newfstatat
    {SYS_newfstatat, "newfstatat"},
#endif
#ifdef SYS_unlinkat
    {SYS_unlinkat, "unlinkat"},
#endif
#ifdef SYS_renameat
    {SYS_renameat, "renameat"},
#endif
#ifdef SYS_linkat
    {SYS_linkat, "linkat"},
#endif
#ifdef SYS_symlinkat
    {SYS_symlinkat, "symlinkat"},
#endif
#ifdef SYS_readlinkat
    {SYS_readlinkat, "readlinkat"},
#endif
#ifdef SYS_fchmodat
    {SYS_fchmodat, "fchmodat"},
#endif
#ifdef SYS_faccessat
    {SYS_faccessat, "faccessat"},
#endif
#ifdef SYS_pselect6
    {SYS_pselect6, "pselect6"},
#endif
#ifdef SYS_ppoll
    {SYS_ppoll, "ppoll"},
#endif
#ifdef SYS_unshare
    {SYS_unshare, "unshare"},
#endif
#ifdef SYS_set_robust_list
    {SYS_set_robust_list, "set_robust_list"},
#endif
#ifdef SYS_get_robust_list
    {SYS_get_robust_list, "get_robust_list"},
#endif
#ifdef SYS_splice
    {SYS_splice, "splice"},
#endif
#ifdef SYS_tee
    {SYS_tee, "tee"},
#endif
#ifdef SYS_sync_file_range
    {SYS_sync_file_range, "sync_file_range"},
#endif
#ifdef SYS_vmsplice
    {SYS_vmsplice, "vmsplice"},
#endif
#ifdef SYS_move_pages
    {SYS_move_pages, "move_pages"},
#endif
#ifdef SYS_utimensat
    {SYS_utimensat, "utimensat"},
#endif
#ifdef SYS_epoll_pwait
    {SYS_epoll_pwait, "epoll_pwait"},
#endif
#ifdef SYS_signalfd
    {SYS_signalfd, "signalfd"},
#endif
#ifdef SYS_timerfd_create
    {SYS_timerfd_create, "timerfd_create"},
#endif
#ifdef SYS_eventfd
    {SYS_eventfd, "eventfd"},
#endif
#ifdef SYS_fallocate
    {SYS_fallocate, "fallocate"},
#endif
#ifdef SYS_accept4
    {SYS_accept4, "accept4"},
#endif
#ifdef SYS_signalfd4
    {SYS_signalfd4, "signalfd4"},
#endif
#ifdef SYS_eventfd2
    {SYS_eventfd2, "eventfd2"},
#endif
#ifdef SYS_epoll_create1
    {SYS_epoll_create1, "epoll_create1"},
#endif
#ifdef SYS_dup3
    {SYS_dup3, "dup3"},
#endif
#ifdef SYS_pipe2
    {SYS_pipe2, "pipe2"},
#endif
#ifdef SYS_inotify_init1
    {SYS_inotify_init1, "inotify_init1"},
#endif
#ifdef SYS_preadv
    {SYS_preadv, "preadv"},
#endif
#ifdef SYS_pwritev
    {SYS_pwritev, "pwritev"},
#endif
#ifdef SYS_rt_tgsigqueueinfo
    {SYS_rt_tgsigqueueinfo, "rt_tgsigqueueinfo"},
#endif
#ifdef SYS_perf_event_open
    {SYS_perf_event_open, "perf_event_open"},
#endif
#ifdef SYS_recvmmsg
    {SYS_recvmmsg, "recvmmsg"},
#endif
#ifdef SYS_fanotify_init
    {SYS_fanotify_init, "fanotify_init"},
#endif
#ifdef SYS_prlimit64
    {SYS_prlimit64, "prlimit64"},
#endif
#ifdef SYS_name_to_handle_at
    {SYS_name_to_handle_at, "name_to_handle_at"},
#endif
#ifdef SYS_open_by_handle_at
    {SYS_open_by_handle_at, "open_by_handle_at"},
#endif
#ifdef SYS_clock_adjtime
    {SYS_clock_adjtime, "clock_adjtime"},
#endif
#ifdef SYS_syncfs
    {SYS_syncfs, "syncfs"},
#endif
#ifdef SYS_sendmmsg
    {SYS_sendmmsg, "sendmmsg"},
#endif
#ifdef SYS_setns
    {SYS_setns, "setns"},
#endif
#ifdef SYS_getcpu
    {SYS_getcpu, "getcpu"},
#endif
#ifdef SYS_process_vm_readv
    {SYS_process_vm_readv, "process_vm_readv"},
#endif
#ifdef SYS_process_vm_writev
    {SYS_process_vm_writev, "process_vm_writev"},
#endif
#ifdef SYS_kcmp
    {SYS_kcmp, "kcmp"},
#endif
#ifdef SYS_finit_module
    {SYS_finit_module, "finit_module"},
#endif
#ifdef SYS_sched_setattr
    {SYS_sched_setattr, "sched_setattr"},
#endif
#ifdef SYS_sched_getattr
    {SYS_sched_getattr, "sched_getattr"},
#endif
#ifdef SYS_renameat2
    {SYS_renameat2, "renameat2"},
#endif
#ifdef SYS_seccomp
    {SYS_seccomp, "seccomp"},
#endif
#ifdef SYS_getrandom
    {SYS_getrandom, "getrandom"},
#endif
#ifdef SYS_memfd_create
    {SYS_memfd_create, "memfd_create"},
#endif
#ifdef SYS_kexec_file_load
    {SYS_kexec_file_load, "kexec_file_load"},
#endif
#ifdef SYS_bpf
    {SYS_bpf, "bpf"},
#endif
#ifdef SYS_execveat
    {SYS_execveat, "execveat"},
#endif
#ifdef SYS_userfaultfd
    {SYS_userfaultfd, "userfaultfd"},
#endif
#ifdef SYS_membarrier
    {SYS_membarrier, "membarrier"},
#endif
#ifdef SYS_mlock2
    {SYS_mlock2, "mlock2"},
#endif
#ifdef SYS_copy_file_range
    {SYS_copy_file_range, "copy_file_range"},
#endif
#ifdef SYS_pkey_mprotect
    {SYS_pkey_mprotect, "pkey_mprotect"},
#endif
#ifdef SYS_pkey_alloc
    {SYS_pkey_alloc, "pkey_alloc"},
#endif
#ifdef SYS_pkey_free
    {SYS_pkey_free, "pkey_free"},
#endif
#ifdef SYS_statx
    {SYS_statx, "statx"},
#endif
#ifdef SYS_io_pgetevents
    {SYS_io_pgetevents, "io_pgetevents"},
#endif
#ifdef SYS_rseq
    {SYS_rseq, "rseq"},
#endif
#ifdef SYS_pidfd_send_signal
    {SYS_pidfd_send_signal, "pidfd_send_signal"},
#endif
#ifdef SYS_io_uring_setup
    {SYS_io_uring_setup, "io_uring_setup"},
#endif
#ifdef SYS_io_uring_enter
    {SYS_io_uring_enter, "io_uring_enter"},
#endif
#ifdef SYS_io_uring_register
    {SYS_io_uring_register, "io_uring_register"},
#endif
#ifdef SYS_open_tree
    {SYS_open_tree, "open_tree"},
#endif
#ifdef SYS_move_mount
    {SYS_move_mount, "move_mount"},
#endif
#ifdef SYS_fsopen
    {SYS_fsopen, "fsopen"},
#endif
#ifdef SYS_fsconfig
    {SYS_fsconfig, "fsconfig"},
#endif
#ifdef SYS_fsmount
    {SYS_fsmount, "fsmount"},
#endif
#ifdef SYS_fspick
    {SYS_fspick, "fspick"},
#endif
    // Headers may be older than the kernel. Calls from 403 on have one number on all processors.
    {434, "pidfd_open"},
    {435, "clone3"},
    {436, "close_range"},
    {437, "openat2"},
    {438, "pidfd_getfd"},
    {439, "faccessat2"},
    {440, "process_madvise"},
    {442, "mount_setattr"},
    {444, "landlock_create_ruleset"},
    {445, "landlock_add_rule"},
    {446, "landlock_restrict_self"},
    {447, "memfd_secret"},
    {448, "process_mrelease"},
    {450, "set_mempolicy_home_node"},
    {451, "cachestat"},
    {452, "fchmodat2"},
    {453, "map_shadow_stack"},
    {454, "futex_wake"},
    {455, "futex_wait"},
    {456, "futex_requeue"},
    {457, "statmount"},
    {458, "listmount"},
    {459, "lsm_get_self_attr"},
    {460, "lsm_set_self_attr"},
    {461, "lsm_list_modules"},
    {462, "mseal"},
    {463, "setxattrat"},
    {464, "getxattrat"},
    {465, "listxattrat"},
    {466, "removexattrat"},
    {467, "open_tree_attr"},
    {468, "file_getattr"},
    {469, "file_setattr"},
    {470, "listns"},
};

}  // namespace

std::string name_of_call(int number) {
    for (const CallName& call : call_names)
        if (call.number == number) return call.name;
    return format("number %d", number);
}

}  // namespace gf_emulator
