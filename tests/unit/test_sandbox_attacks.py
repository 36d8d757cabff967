"""Native code below every check of sources: each attack ends with a verdict on the candidate.

Nothing outside its process has changed afterwards.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulator_harness import ADD, Kernel, prepared, raw, values
from hostile_library import ANY_CALL, CALLED, TEXT, HostileKernel, blamed, call_of

from greenfast.search.targets.emulator.execute import Buffer, Run
from greenfast.search.targets.emulator.isolation import has_seccomp

pytestmark = [
    pytest.mark.skipif(not has_seccomp(), reason="this kernel filters no system calls"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86-64's calls"),
]

AT_FDCWD = -100
# Calls that no kernel needs, by their numbers: some are newer than the installed headers.
CALLS = {
    "open": 2,
    "lseek": 8,
    "rt_sigaction": 13,
    "ioctl": 16,
    "mremap": 25,
    "shmget": 29,
    "dup": 32,
    "setitimer": 38,
    "socket": 41,
    "socketpair": 53,
    "clone": 56,
    "fork": 57,
    "execve": 59,
    "exit": 60,
    "kill": 62,
    "semget": 64,
    "msgget": 68,
    "fcntl": 72,
    "truncate": 76,
    "ftruncate": 77,
    "chdir": 80,
    "rename": 82,
    "unlink": 87,
    "chmod": 90,
    "ptrace": 101,
    "sigaltstack": 131,
    "mlockall": 151,
    "prctl": 157,
    "arch_prctl": 158,
    "setrlimit": 160,
    "mount": 165,
    "tkill": 200,
    "timer_create": 222,
    "clock_nanosleep": 230,
    "exit_group": 231,
    "mq_open": 240,
    "add_key": 248,
    "inotify_init": 253,
    "openat": 257,
    "newfstatat": 262,
    "splice": 275,
    "eventfd2": 290,
    "perf_event_open": 298,
    "prlimit64": 302,
    "open_by_handle_at": 304,
    "process_vm_writev": 311,
    "seccomp": 317,
    "memfd_create": 319,
    "bpf": 321,
    "userfaultfd": 323,
    "pkey_mprotect": 329,
    "pidfd_send_signal": 424,
    "io_uring_setup": 425,
    "pidfd_open": 434,
    "clone3": 435,
    "close_range": 436,
    "openat2": 437,
    "process_madvise": 440,
    "memfd_secret": 447,
    "fchmodat2": 452,
    # Files, descriptors and other processes by their newer names.
    "pwrite64": 18,
    "writev": 20,
    "connect": 42,
    "bind": 49,
    "vfork": 58,
    "chroot": 161,
    "request_key": 249,
    "keyctl": 250,
    "unshare": 272,
    "timerfd_create": 283,
    "fallocate": 285,
    "signalfd4": 289,
    "pipe2": 293,
    "fanotify_init": 300,
    "setns": 308,
    "process_vm_readv": 310,
    "sched_setattr": 314,
    "execveat": 322,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "pidfd_getfd": 438,
}
# What kernels, the allocator, abort() and the dynamic linker need, some of it under conditions.
ALLOWED = {0, 3, 5, 9, 10, 11, 12, 14, 15, 17, 24, 28, 39, 186, 202, 219, 228, 234}
# uretprobe and uprobe: newer kernels let them past every filter. They fail outside the trampolines
# that the kernel itself puts into a process.
PROBES = {335, 336}
BEHIND_THE_LAST_CALL = 512


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def any_call(emulator, libraries):
    return HostileKernel(emulator, ANY_CALL, libraries)


@pytest.fixture
def decoy():
    """Another process of this user: what is done to it could be done to the service."""
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def with_text(run: Run, data: bytes) -> Run:
    return replace(
        run, buffers=(Buffer("text", "input", raw(np.frombuffer(data, np.uint8))), run.buffers[1])
    )


def test_each_call_that_no_kernel_needs_is_a_verdict_that_names_it(any_call):
    runs = [call_of(number) for number in CALLS.values()]
    results = any_call.run(*runs)
    assert [name for name, result in zip(CALLS, results, strict=True) if blamed(result, name)] == [
        *CALLS
    ]


@pytest.mark.slow
def test_every_other_call_of_this_processor_ends_the_run(any_call):
    numbers = [number for number in range(BEHIND_THE_LAST_CALL) if number not in ALLOWED]
    results = any_call.run(*(call_of(number) for number in numbers))
    others = [
        (number, result)
        for number, result in zip(numbers, results, strict=True)
        if result.status != "crash" or not result.faults[0].sentence.startswith(CALLED)
    ]
    assert {number for number, _ in others} <= PROBES
    for _, result in others:
        assert result.status == "crash" or result.outputs["out"].view(np.int64)[0] == -1


def test_calls_by_numbers_of_other_architectures_are_refused(emulator, libraries, any_call):
    # 514 to 547 are x32's own; those with the highest bit are no numbers of any interface.
    others = [0, 2, 59, 335, 336, *range(512, 548)]
    numbers = [*(0x40000000 + each for each in others), 547, 1 << 31, 0x7FFFFFFF, 0xFFFFFFFF]
    for number, result in zip(numbers, any_call.run(*map(call_of, numbers)), strict=True):
        assert result.status == "crash", number
        assert "system call number" in result.faults[0].sentence, number
    text = """extern "C" __global__ void k(float* out) {
        int number = 20;  // getpid of 32-bit programs
        asm volatile("int $0x80" : "+a"(number) :: "memory");
        out[0] = number; }"""
    assert HostileKernel(emulator, text, libraries).once().faults[0].kind == "device_fault"


def test_no_file_of_ours_is_emptied_or_opened_to_others(any_call, tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("precious")
    kept.chmod(0o600)
    path = str(kept)
    attacks = {
        "truncate": call_of(76, TEXT, 0, text=path),
        "open": call_of(2, TEXT, os.O_TRUNC | os.O_WRONLY, text=path),
        "openat": call_of(257, AT_FDCWD, TEXT, os.O_RDONLY, text=path),
        "chmod": call_of(90, TEXT, 0o777, text=path),
        "fchmodat": call_of(268, AT_FDCWD, TEXT, 0o777, text=path),
        "fchmodat2": call_of(452, AT_FDCWD, TEXT, 0o777, 0, text=path),
        "unlink": call_of(87, TEXT, text=path),
        "utimensat": call_of(280, AT_FDCWD, TEXT, 0, 0, text=path),
        "setxattr": call_of(188, TEXT, TEXT, TEXT, 1, 0, text=path),
    }
    results = any_call.run(*attacks.values())
    for call, result in zip(attacks, results, strict=True):
        assert blamed(result, call), (call, result)
    assert kept.read_text() == "precious" and kept.stat().st_mode & 0o777 == 0o600


def test_no_signal_priority_or_core_of_another_process_changes(any_call, decoy):
    queued = struct.pack("<iiii", signal.SIGTERM, 0, -1, 0) + bytes(112)
    cores = struct.pack("<Q", 1)
    pid = decoy.pid
    priority, affinity = os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid)
    attacks = {
        "kill": call_of(62, pid, signal.SIGTERM),
        "tgkill": call_of(234, pid, pid, signal.SIGTERM),
        "rt_sigqueueinfo": with_text(call_of(129, pid, signal.SIGTERM, TEXT), queued),
        "rt_tgsigqueueinfo": with_text(call_of(297, pid, pid, signal.SIGTERM, TEXT), queued),
        "setpriority": call_of(141, os.PRIO_PROCESS, pid, 19),
        "sched_setaffinity": with_text(call_of(203, pid, 8, TEXT), cores),
        "sched_setscheduler": call_of(144, pid, 3, TEXT),
        "ioprio_set": call_of(251, 1, pid, 3 << 13),
        "prlimit64": call_of(302, pid, 7, TEXT, 0),
        "process_vm_readv": call_of(310, pid, TEXT, 0, TEXT, 0, 0),
    }
    results = any_call.run(*attacks.values())
    for call, result in zip(attacks, results, strict=True):
        assert blamed(result, call), (call, result)
    assert decoy.poll() is None
    assert os.getpriority(os.PRIO_PROCESS, pid) == priority
    assert os.sched_getaffinity(pid) == affinity


def test_no_descriptor_signals_its_owner(emulator, libraries, decoy):
    text = """extern "C" int fcntl(int, int, ...);
    extern "C" __global__ void k(int* out, int pid) {
        if (threadIdx.x) return;
        for (int f = 0; f < 64; f++) { fcntl(f, 8, pid); fcntl(f, 4, 020001); } }"""
    kernel = HostileKernel(emulator, text, libraries)
    assert blamed(kernel({}, {"out": np.zeros(1, np.int32)}, decoy.pid), "fcntl")
    assert decoy.poll() is None


def test_shared_memory_and_queues_do_not_outlive_it(any_call):
    key = 0x5EED0000 + os.getpid() % 0xFFFF
    attacks = {
        "shmget": call_of(29, key, 4096, 0o1600),
        "semget": call_of(64, key, 1, 0o1600),
        "msgget": call_of(68, key, 0o1600),
    }
    results = any_call.run(*attacks.values())
    assert all(blamed(result, call) for call, result in zip(attacks, results, strict=True))
    libc = ctypes.CDLL(None)
    assert libc.shmget(key, 0, 0) == libc.semget(key, 0, 0) == libc.msgget(key, 0) == -1


def test_it_writes_no_file_at_all(emulator, libraries, tmp_path):
    text = f"""extern "C" int open(const char*, int, ...);
    extern "C" long write(int, const void*, unsigned long);
    extern "C" __global__ void k(float* out) {{
        if (threadIdx.x) return;
        static char block[1 << 20];
        const int file = open("{tmp_path}/flood", 0101, 0600);
        for (int i = 0; i < 600; i++) write(file, block, sizeof block); }}"""
    assert blamed(HostileKernel(emulator, text, libraries).once(), "openat")
    assert not any(tmp_path.iterdir())


def test_no_memory_becomes_code(emulator, libraries, any_call):
    page_rwx = call_of(9, 0, 4096, 7, 0x22, -1, 0)
    assert blamed(any_call.run(page_rwx)[0], "mmap")
    own_bytes = """
    extern "C" int mprotect(void*, unsigned long, int);
    alignas(4096) char code[4096] = {'\\xb8', 42, 0, 0, 0, '\\xc3'};
    extern "C" __global__ void k(float* out) {
        if (threadIdx.x) return;
        mprotect(code, 4096, 5);
        out[0] = ((int (*)())code)(); }"""
    kernel = HostileKernel(emulator, own_bytes, libraries)
    assert blamed(kernel.once(), "mprotect")


def test_a_library_with_writable_code_is_not_loaded(emulator, libraries):
    text = 'extern "C" __global__ void k(float* out) { out[0] = 2; }'
    kernel = HostileKernel(emulator, text, libraries)
    library = bytearray(kernel.module.path.read_bytes())
    (table,) = struct.unpack_from("<Q", library, 32)
    size, count = struct.unpack_from("<HH", library, 54)
    for header in range(table, table + size * count, size):
        kind, rights = struct.unpack_from("<II", library, header)
        if kind == 1 and rights & 1:  # PT_LOAD, PF_X
            struct.pack_into("<I", library, header + 4, 7)
    kernel.module.path.write_bytes(library)
    sentence = kernel.once().faults[0].sentence
    assert sentence == "the candidate made the system call mmap while it was loaded"


ON_LOADING = """
extern "C" long syscall(long, ...);
namespace { struct Early { Early() { %s; } } early; }
extern "C" __global__ void k(float* out) { out[0] = 1; }
"""


@pytest.mark.parametrize(
    ("deed", "sentence"),
    [
        ('syscall(2, "/etc/passwd", 0)', f"{CALLED} open"),
        ('syscall(257, -100, "/etc/passwd", 0)', f"{CALLED} openat"),
        ('syscall(262, -100, "/etc/passwd", 0, 0)', f"{CALLED} newfstatat"),
        ("syscall(231, 0)", f"{CALLED} exit_group"),
        ("*(volatile int*)8 = 1", "the library was stopped by signal 11"),
    ],
)
def test_constructors_have_no_more_rights_than_kernels(emulator, libraries, deed, sentence):
    result = HostileKernel(emulator, ON_LOADING % deed, libraries).once()
    assert result.status == "crash", result
    assert result.faults[0].sentence == f"{sentence} while it was loaded"


@pytest.mark.slow
def test_a_constructor_that_never_returns_is_a_timeout(emulator, libraries):
    kernel = HostileKernel(emulator, ON_LOADING % "for (volatile int i = 1; i;) {}", libraries)
    job = kernel.job({}, {"out": np.zeros(1, np.float32)})
    assert kernel.run(job, deadline_s=0.3)[0].status == "timeout"


def test_the_only_open_descriptor_is_the_report(any_call):
    # Without a right to ask, the kernel learns only that each call fails: fstat of the library's
    # number, which the filter lets through, finds nothing there any more.
    results = any_call.run(*(call_of(5, number, TEXT, text=" " * 256) for number in range(8)))
    outcomes = [
        result.faults[0].sentence if result.faults else result.outputs["out"].view(np.int64)[0]
        for result in results
    ]
    assert outcomes.count(-1) == 1, "the library's: closed"
    assert outcomes.count("the candidate made the system call fstat") == 7


def test_a_call_made_with_all_of_the_allocators_locks_held_is_reported(emulator, libraries):
    text = """extern "C" int fork();
    extern "C" __global__ void k(float* out) { if (threadIdx.x == 0) out[0] = fork(); }"""
    assert blamed(HostileKernel(emulator, text, libraries).once(), "clone")


@pytest.mark.parametrize(
    ("deed", "sentence"),
    [
        ("exit(0)", f"{CALLED} exit_group"),  # after all destructors
        ("_exit(81)", f"{CALLED} exit_group"),
        ("pthread_sigmask(0, all, nullptr); raise(9)", "SIGSYS ended the run's process"),
        ("pthread_sigmask(0, all, nullptr); _exit(0)", "SIGSYS ended the run's process"),
    ],
)
def test_no_end_of_the_process_is_our_fault(emulator, libraries, deed, sentence):
    text = """extern "C" {
    void exit(int);
    void _exit(int);
    int raise(int);
    int pthread_sigmask(int, const void*, void*);
    }
    extern "C" __global__ void k(float* out) {
        if (threadIdx.x) return;
        unsigned long all[16];
        for (unsigned long& word : all) word = ~0ul;
        %s; }"""
    result = HostileKernel(emulator, text % deed, libraries).once()
    assert (result.status, result.faults[0].sentence) == ("crash", sentence)


def test_an_abort_is_still_called_one(emulator, libraries):
    text = """extern "C" void abort();
    extern "C" __global__ void k(float* out) { abort(); }"""
    result = HostileKernel(emulator, text, libraries).once()
    assert result.faults[0].sentence == "the kernel called abort"


def test_a_run_cannot_change_the_outputs_of_the_run_before(emulator, libraries):
    # The first run's outputs are handed over in pages that the second run cannot reach any more.
    text = """
    extern "C" long syscall(long, ...);
    extern "C" __global__ void k(float* out) { out[threadIdx.x] = 7; }"""
    kernel = HostileKernel(emulator, text, libraries)
    job = kernel.job({}, {"out": np.zeros(32, np.float32)})
    results = kernel.run(job, replace(job, name="second"))
    assert all((values(result, "out") == 7).all() for result in results)


def test_nothing_lies_in_a_folder_while_it_runs(emulator, libraries, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    a = np.arange(32, dtype=np.float32)
    result = Kernel(emulator, ADD)({"a": a, "b": a}, {"c": np.zeros_like(a)}, 32)
    assert np.array_equal(values(result, "c"), 2 * a)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_its_children_and_descriptors_are_gone_afterwards(any_call):
    before = set(os.listdir("/proc/self/fd"))
    any_call.run(call_of(57), call_of(62, os.getppid(), 0))
    assert set(os.listdir("/proc/self/fd")) == before
    assert Path("/proc/self").exists()
