"""Texts that would change how numbers are rounded or who runs next, instead of computing.

None of them is built into a library that is loaded.
"""

from __future__ import annotations

import pytest
from emulator_harness import prepared
from slow_cases import quick_first

from greenfast.search.targets.emulator.build import Module
from greenfast.search.targets.emulator.word_set import word_set

KERNEL = 'extern "C" __global__ void k(float* out) { %s }'
FORGED = {
    # the processor's state
    "rounding of the vector unit": KERNEL % "__builtin_ia32_ldmxcsr(0xffc0);",
    "rounding by the C library": 'extern "C" int fesetround(int);' + KERNEL % "fesetround(0x800);",
    "environment of numbers": 'extern "C" int fesetenv(const void*);' + KERNEL % "fesetenv(out);",
    "pragma of the environment": "#pragma STDC FENV_ACCESS ON\n" + KERNEL % "",
    "cycle counter": KERNEL % "out[0] = __builtin_ia32_rdtsc();",
    "thread pointer": KERNEL % "out[0] = (long)__builtin_thread_pointer();",
    "segment of the thread": "typedef __seg_fs float* P;" + KERNEL % "*(P)0 = 1;",
    "system call by its header": "#include <sys/syscall.h>\n" + KERNEL % "",
    # another way out of a function
    "builtin of a jump": "__device__ void* b[5];" + KERNEL % "__builtin_longjmp(b, 1);",
    "builtin of a jump's target": "__device__ void* b[5];" + KERNEL % "__builtin_setjmp(b);",
    "jump of the C library": 'extern "C" void longjmp(void*, int);' + KERNEL % "longjmp(out, 1);",
    "end of the process": 'extern "C" void _exit(int);' + KERNEL % "_exit(0);",
    "another return": KERNEL % "__builtin_eh_return(0, out);",
    "a call with another's arguments": KERNEL % "__builtin_return(__builtin_apply_args());",
    "signal handler": 'extern "C" void* signal(int, void*);' + KERNEL % "signal(11, out);",
    # code before and after
    "destructor of a thread": (
        "struct S { __device__ ~S() { *(volatile int*)16 = 1; } };"
        + KERNEL % "static thread_local S s;"
    ),
    "destructor of an object": (
        'extern "C" int __cxa_atexit(void*, void*, void*);' + KERNEL % "__cxa_atexit(out, 0, 0);"
    ),
    "early table": '__attribute__((section(".preinit_array"))) long early = 1;' + KERNEL % "",
    "weak function of the runtime": (
        'extern "C" __attribute__((weak)) void* _Znwm(unsigned long) { return 0; }' + KERNEL % ""
    ),
    "register by name": "register long stack __asm__(" + '"rsp");' + KERNEL % "",
}
# Memory that other processes share, code from memory, other processes: no header, no declaration.
CALLS = word_set(
    "memfd_create mremap mprotect mmap ptrace prctl personality process_vm_readv pidfd_getfd "
    "io_uring_setup userfaultfd clone vfork pthread_create pthread_setspecific sigaltstack "
    "shm_open shmget dlopen getauxval write raise abort"
)


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


def refusal(emulator, text: str) -> str:
    module = emulator.build_module(
        f'#line 1 "test.cu"\n{text}\n', ("k",), flavour="plain", deadline_s=60
    )
    assert not isinstance(module, Module), "it would have been loaded"
    assert module.reason in ("refused", "compile"), module
    return module.log


@pytest.mark.parametrize("name", quick_first(FORGED, 8))
def test_no_text_changes_the_processors_state_or_leaves_its_function(emulator, name):
    assert "test.cu" in refusal(emulator, FORGED[name])


def test_no_call_of_the_system_is_imported(emulator):
    """Of several in a text one is named; each alone is refused like them."""
    for calls in (sorted(CALLS), ["raise"]):
        declared = "".join(f'extern "C" long {call}(...);\n' for call in calls)
        body = "".join(f"out[0] += {call}(0); " for call in calls)
        sentence = refusal(emulator, declared + KERNEL % body)
        assert "test.cu:" in sentence and "CUDA" in sentence, sentence
