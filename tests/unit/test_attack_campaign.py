"""Texts and launch files that only an enemy writes, of kinds that no other test has.

Each text must be refused with its line, and each launch file with a code, before anything of it
runs. The twins beside them are unusual, and right.
"""

from __future__ import annotations

import pytest
from emulator_harness import prepared

from greenfast.search.targets.emulator.source_rewriting import Refused

KERNEL = 'extern "C" __global__ void k(float* out) { %s }\n'
REFUSED = {
    # attributes and pragmas of the host's compiler
    "constructor by a redefined word": (
        "#define __device__ __attribute__((constructor))\n__device__ void f() {}\n"
    ),
    "visibility pragma": "#pragma GCC visibility push(default)\n",
    "weak pragma": "#pragma weak f\n",
    "another name of a function": "#pragma redefine_extname f g\n",
    "order of bytes, by a pragma": "#pragma scalar_storage_order big-endian\n",
    "order of bytes": 'struct __attribute__((scalar_storage_order("big-endian"))) S { int a; };\n',
    "mode": "typedef int V __attribute__((mode(TI)));\n",
    "transparent union": "union __attribute__((transparent_union)) U { int a; };\n",
    "hidden from other functions": "__attribute__((noipa)) __device__ void f();\n",
    "not to be cloned": "__attribute__((noclone)) __device__ void f();\n",
    "an error of its own": '__attribute__((error("x"))) __device__ void f();\n',
    "priority of a constructor": "__attribute__((init_priority(101))) int s;\n",
    "naked": "__attribute__((naked)) __device__ void f();\n",
    "not instrumented": "__attribute__((no_instrument_function)) __device__ void f();\n",
    "not sanitized": "__attribute__((disable_sanitizer_instrumentation)) __device__ void f();\n",
    "constructor by using": "[[using gnu: constructor]] void f() {}\n",
    "section of an enumerator": 'enum E { A __attribute__((section("x"))) };\n',
    "accelerators' pragma": "#pragma acc parallel\n",
    "contraction": "#pragma STDC FP_CONTRACT OFF\n",
    "order of sums": "#pragma clang fp reassociate(on)\n",
    # directives and characters
    "directive by a macro": '#define L line\n#L 1 "x"\n',
    "name in an escape": KERNEL % '\\u0061sm("nop");',
    "hook in an escape": 'extern "C" void \\u005f_tsan_read4(void*) {}\n',
    "assembly behind a carriage return": '// a comment\rasm("syscall");\n',
    "assembly behind a form feed": "\f#define A asm\n" + KERNEL % 'A("syscall");',
    "imported file": '#import "/etc/passwd"\n',
    "embedded file": '__device__ const char x[] = {\n#embed "/etc/passwd"\n};\n',
    "standard input": '#include "-"\n',
    "its own text": '#include "kernel.cu"\n',
    "environment of the compiler": '#include "/proc/self/environ"\n',
    "identification": '#ident "x"\n',
    "identification of old": '#sccs "x"\n',
    "line of a builtin": KERNEL % "out[0] = __builtin_LINE();",
    "function of a builtin": KERNEL % "out[0] = __builtin_FUNCTION()[0];",
    # assembly that is no PTX
    "symbol with a newline": 'extern void g(float*) __asm__("evil\\nname");\n',
    "symbol of a hook": '__asm__(".globl __tsan_read4\\n__tsan_read4: ret");\n',
    "directive in pasted assembly": '#define Q(x) __a##x\nQ(sm__)(".globl x");\n',
    "directive behind a brace": KERNEL % 'asm volatile("}\\n.globl x; mov.u32 %%0, 1;" ::);',
    "instruction of the host": KERNEL % 'asm volatile("syscall");',
    "register of the host": KERNEL % 'asm("mov.u32 %0, %%rax;" : "=r"(*(int*)out));',
    "jump from assembly": KERNEL % 'asm goto("" : : : : l); l: ;',
    "memory as an operand": KERNEL % 'asm("mov.b32 %0, 1;" : "=m"(*out));',
    "variable in a register": 'register int r asm("rsp");\n',
    # the host's library
    "algorithm's inside": KERNEL % "std::__fill_n_a(out, 1, 1);",
    "specialised class": "template <> struct std::is_same<int, float> {};\n",
    "processor's store": KERNEL % "__builtin_ia32_movnti((int*)out, 1);",
    "prefetch": KERNEL % "__builtin_prefetch(out);",
    "exceptions of a function": KERNEL % "out[0] = noexcept((expf)(1.0f));",
    "list of arguments": KERNEL % "__builtin_va_list v;",
}
RIGHT = {
    "a word of CUDA redefined for its own use": "#define TILE 8\n#undef TILE\n#define TILE 16\n",
    "a macro that guards a barrier": "#define SYNC() __syncthreads()\n" + KERNEL % "SYNC();",
    "digraphs": "__device__ int f(int* a) <% return a<:0:>; %>\n",
    "raw strings": '__device__ const char s[] = R"x(asm("nop");)x";\n',
    "assembly in a string": '__device__ const char s[] = "asm(\\"nop\\")";\n',
    "old line ends": 'extern "C" __global__ void k(float* out)\r\n{\r\n    out[0] = 1;\r\n}\r\n',
    "vertical tabs": "#\vdefine A 1\n" + KERNEL % "out[0] = A;",
    "literal of its own": (
        '__device__ constexpr float operator""_asm(unsigned long long) { return 1; }\n'
    ),
    "packed by a pragma": (
        "#pragma pack(push, 1)\nstruct S { char c; float f; };\n#pragma pack(pop)\n"
    ),
    "unrolled much": "#pragma GCC unroll 64\n" + KERNEL % "",
    "class of its own, specialised": (
        "template <class T> struct T1 {};\n"
        "template <> struct T1<std::is_same<int, float>> : std::true_type {};\n"
    ),
    "a promise of its own": "__device__ void f(int a) noexcept(sizeof(a) == 4 && true);\n"
    "struct S { __device__ S() noexcept {} };\n"
    "__device__ constexpr bool b = noexcept(1 + 1);\n",
    "its own namespace": "namespace mine { __device__ void __syncthreads() {} }\n",
    "an overload": "__device__ float atomicAdd(float* a, double b) { return *a += b; }\n",
    "a shadowed name": KERNEL % "struct { int x; } threadIdx = {0}; out[threadIdx.x] = 1;",
    "a message in colours": '[[deprecated("old")]] __device__ void f();\n',
}


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


def examined(emulator, text: str):
    return emulator.examined(f'#line 1 "test.cu"\n{text}', arch="sm_90", deadline_s=20)


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_text_is_refused_with_its_line(emulator, name):
    answer = examined(emulator, REFUSED[name])
    assert not isinstance(answer, str), answer
    sentence = answer.sentence if isinstance(answer, Refused) else answer.log
    assert "test.cu" in sentence and "root:" not in sentence, sentence


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_an_unusual_text_is_not_refused(emulator, name):
    answer = examined(emulator, RIGHT[name])
    assert isinstance(answer, str), answer
