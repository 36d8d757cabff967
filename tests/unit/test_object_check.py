"""A built library is read before it is loaded: it must hold the candidate's kernels and no more."""

from __future__ import annotations

import random

import pytest
from emulator_harness import ADD, Kernel, prepared
from slow_cases import quick_first

from greenfast.search.targets.emulator.build import ModuleFailed
from greenfast.search.targets.emulator.flags import FLAVOURS
from greenfast.search.targets.emulator.object_check import object_fault

EXPORTS = frozenset(("gf_entry_k",))
ENTRY = '\nextern "C" __global__ void k(float* out) { %s }\n'


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


def image(emulator, text: str, flavour: str = "plain") -> bytes:
    return Kernel(emulator, text, flavour=flavour, is_examined=False).module.path.read_bytes()


@pytest.fixture(scope="module")
def right(emulator):
    return image(emulator, ADD, "checked")


HOSTILE = {
    "a constructor": (
        "volatile int a; __attribute__((constructor)) void early() { a = 1; }" + ENTRY % "",
        "runs before",
    ),
    "a destructor": (
        "volatile int a; __attribute__((destructor)) void late() { a = 1; }" + ENTRY % "",
        "dynamic tag",
    ),
    "a value that is computed": (
        "int compute(); int value = compute(); int compute() { return *(volatile int*)&value + 1; }"
        + ENTRY % "out[0] = value;",
        "runs before",
    ),
    "an entry of the table itself": (
        "volatile int a; void early() { a = 1; }\n"
        '__attribute__((section(".init_array"), used)) static void (*entry)() = early;'
        + ENTRY
        % "",
        "runs before",
    ),
    "an indirect function": (
        'extern "C" { static void real() {} static void (*pick())() { return real; }\n'
        '__attribute__((ifunc("_ZL4pickv"), used)) void chosen(); }\n'.replace("_ZL4pickv", "pick")
        + ENTRY % "chosen();",
        None,
    ),
    "a function of C": (
        'extern "C" int system(const char*);' + ENTRY % 'out[0] = system("true");',
        "`system` is not a CUDA function",
    ),
    "a variable of C": (
        'extern "C" char** environ;' + ENTRY % "out[0] = environ[0][0];",
        "`environ` is not a CUDA function",
    ),
    "an own hook": (
        'extern "C" __attribute__((visibility("default"), externally_visible, used))\n'
        "void __tsan_read4(void*) {}" + ENTRY % "",
        "`__tsan_read4` is visible outside",
    ),
    "a variable for others": (
        'extern "C" { __attribute__((visibility("default"), externally_visible)) int shown = 5; }'
        + ENTRY % "out[0] = shown;",
        "`shown` is visible outside",
    ),
    "an executable stack": (
        'asm(".section .note.GNU-stack,\\"x\\",@progbits\\n.text");' + ENTRY % "",
        "executable",
    ),
}


@pytest.mark.parametrize("flavour", quick_first(["checked", "plain"], 5))
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_object_is_not_loaded(emulator, name, flavour):
    text, words = HOSTILE[name]
    fault = object_fault(image(emulator, text, flavour), EXPORTS)
    assert fault is not None and (words is None or words in fault.sentence), (name, fault)


ARRAYS_OF_A_CLASS = """
#include <cuda_fp16.h>
struct Pair { float first, second; Pair() = default; __device__ Pair(float a) : first(a) {} };
__device__ __half halves[64];
__device__ Pair pairs[2][4];
extern "C" __global__ void k(float* out) {
    halves[threadIdx.x] = out[0];
    pairs[1][threadIdx.x % 4] = Pair(out[1]);
    out[threadIdx.x] = float(halves[threadIdx.x]) + pairs[1][0].first;
}
"""


@pytest.mark.parametrize("flavour", ["plain", "checked"])
def test_an_array_of_a_class_has_no_constructor_to_run(emulator, flavour):
    """g++ writes an empty one for it."""
    assert object_fault(image(emulator, ARRAYS_OF_A_CLASS, flavour), EXPORTS) is None


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_kernel_is_loaded(emulator, flavour):
    assert object_fault(image(emulator, ADD, flavour), EXPORTS) is None


def test_an_entry_that_nobody_asked_for_is_a_fault(right):
    fault = object_fault(right, frozenset(("gf_entry_other",)))
    assert fault is not None and fault.name == "gf_entry_k"


def test_an_object_that_is_cut_or_changed_is_read_without_an_error(right):
    """Every answer is a fault or none; nothing is raised, and nothing takes long."""
    for length in range(0, len(right), 997):
        assert object_fault(right[:length], EXPORTS) is not None or length > 0x3000
    generator = random.Random(5)
    faults = 0
    for _ in range(300):
        changed = bytearray(right)
        for _ in range(3):
            changed[generator.randrange(min(len(right), 0x700))] = generator.randrange(256)
        faults += object_fault(bytes(changed), EXPORTS) is not None
    assert faults > 50


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            'extern "C" int __fork(const char*);\n' + ENTRY % 'out[0] = __fork("true");',
            "test.cu:1: `__fork` is not a CUDA function",
        ),
        (
            "__device__ int value();\nint early = value();\n"
            "__device__ int value() { return *(volatile int*)&early + 1; }\n"
            + ENTRY
            % "out[0] = early;",
            "runs before its kernel",
        ),
        (
            "\n__device__ void* operator new(size_t) { return nullptr; }\n" + ENTRY % "new int;",
            "test.cu:2: the emulator does not run texts that replace `operator new`",
        ),
    ],
)
def test_a_text_with_such_an_object_is_refused(emulator, text, words):
    failed = emulator.build_module(
        f'#line 1 "test.cu"\n{text}', ("k",), flavour="plain", deadline_s=60
    )
    assert isinstance(failed, ModuleFailed) and failed.reason == "refused"
    assert words in failed.log
