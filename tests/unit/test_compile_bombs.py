"""Texts and files that would cost a compiler a machine: each ends as a reason."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest
from emulator_harness import prepared
from slow_cases import quick_first
from test_compiler_confinement import _allowing, _kept

from greenfast.search.cpu_time import Deadline
from greenfast.search.targets.emulator.build import ModuleFailed
from greenfast.search.targets.emulator.compiler_process import WORK_FILES, run_compiler

LADDER = "".join(f"#define M{n} M{n - 1} M{n - 1} M{n - 1} M{n - 1}\n" for n in range(1, 16))
KERNEL = 'extern "C" __global__ void k(int* x) { x[0] = 1; }\n'
ENDED = {"timeout", "memory", "crash"}
# The text, and the reasons that it may end for.
BOMBS = {
    "2^30 tokens": ("#define M0 1+\n" + LADDER + "int x = M15 0;\n", ENDED),
    # 16 MiB, which our own process would read
    "2^23 tokens of 600 bytes": (
        "".join(f"#define N{n} N{n - 1} N{n - 1}\n" for n in range(1, 24)) + "int x[] = {N23};\n",
        {"compile", "refused", *ENDED},
    ),
    "includes itself": ("#include __FILE__\n", {"compile"}),
    "endless templates": (
        "template <int N> struct A { static constexpr int v = A<N + 1>::v; };\nint x = A<0>::v;\n",
        {"compile"},
    ),
    "2^40 templates": (
        (
            "template <int N, int M> struct A { static constexpr int v = A<N - 1, 2 * M>::v"
            " + A<N - 1, 2 * M + 1>::v; };\n"
            "template <int M> struct A<0, M> { static constexpr int v = 1; };\n"
            "int x = A<40, 0>::v;\n"
        ),
        ENDED,
    ),
    "a loop while compiling": (
        (
            "constexpr int f() { int n = 0; for (long i = 0; i < 1L << 60; ++i) n ^= int(i);"
            " return n; }\nconstexpr int x = f();\n"
        ),
        {"compile", *ENDED},
    ),
    "nested parentheses": (f"int x = {'(' * 200_000}1{')' * 200_000};\n", ENDED),
}
QUICK = ("includes itself", "endless templates", "2^23 tokens of 600 bytes")


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


@pytest.mark.parametrize(
    "bomb",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in BOMBS],
)
@pytest.mark.parametrize("is_examined", quick_first([True, False], 1))
def test_a_bomb_ends_as_a_reason_and_leaves_nothing(emulator, bomb, is_examined):
    before = _kept(emulator)
    text, reasons = BOMBS[bomb]
    built = emulator.build_module(
        text + KERNEL, ("k",), flavour="plain", deadline_s=4, is_examined=is_examined
    )
    assert isinstance(built, ModuleFailed)
    assert built.reason in reasons | ({"compile", "refused"} if is_examined else set()), built.log
    assert _kept(emulator) == before


@pytest.mark.slow
def test_macros_that_fill_the_memory_are_refused_and_no_fault(emulator):
    macros = "#define A(x) x x x x\n#define B(x) A(A(A(A(x))))\n"
    text = f"{macros}__device__ void f() {{ B(B(B(;))) }}\n{KERNEL}"
    built = emulator.build_module(
        f'#line 1 "test.cu"\n{text}', ("k",), flavour="plain", deadline_s=20
    )
    assert isinstance(built, ModuleFailed) and built.reason == "refused"
    assert built.log.startswith("test.cu:1: macros and includes make more than 4 Mi characters")


PROGRAMS = {
    "sparse files": "while :; do truncate -s 60M f$i; i=$((i+1)); done",
    "a hole": "truncate -s 63M a b; sleep 100",
    "empty files": "while :; do : > f$i; i=$((i+1)); done",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_files_without_blocks_and_without_bytes_are_of_the_quota(emulator, tmp_path, program):
    shell = _allowing(emulator, "/usr/bin", "/bin")
    command = ["/bin/sh", "-c", f"i=0; {PROGRAMS[program]}"]
    failed = run_compiler(command, tmp_path, Deadline.of(20.0), shell)
    assert failed is not None and failed.reason == "memory"
    assert f"or {WORK_FILES} files" in failed.log


CALLS = """
import ctypes, json, os
library = ctypes.CDLL(None, use_errno=True)
def answer(number, *arguments):
    ctypes.set_errno(0)
    library.syscall(number, *arguments)
    return ctypes.get_errno()
answers = {number: answer(number, 0, 0, 0, 0, 0) for number in (%s)}
for name in ("mkdir", "mkfifo"):
    try:
        getattr(os, name)("new")
        answers[name] = 0
    except OSError as error:
        answers[name] = error.errno
for name in ("symlink", "link"):
    try:
        getattr(os, name)("log", "new")
        answers[name] = 0
    except OSError as error:
        answers[name] = error.errno
print(json.dumps(answers))
"""
ADDED_LATELY = [443, *range(447, 480), 1000]


@pytest.mark.skipif(sys.platform != "linux", reason="system calls of Linux")
def test_calls_that_were_added_lately_and_links_and_folders_are_not_the_compilers(
    emulator, tmp_path
):
    python = str(Path(sys.executable).resolve())
    program = CALLS % ", ".join(map(str, ADDED_LATELY))
    command = [python, "-S", "-c", program]
    failed = run_compiler(command, tmp_path, Deadline.of(20.0), _allowing(emulator, "/"))
    assert failed is None, failed
    answers = json.loads((tmp_path / "log").read_text())
    assert {answers.pop(str(number)) for number in ADDED_LATELY} == {errno.ENOSYS}
    assert answers == dict.fromkeys(("mkdir", "mkfifo", "symlink", "link"), errno.EPERM)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.skipif(sys.platform != "linux", reason="system calls of Linux")
def test_calls_that_were_added_lately_are_not_those_of_confined_children(tmp_path):
    program = "from greenfast.search.confinement import confine\n" + CALLS % ", ".join(
        map(str, ADDED_LATELY)
    ).replace("%", "%%")
    program = program.replace("answers = {", "confine([], ['.'])\nanswers = {", 1)
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    answers = json.loads(run.stdout)
    assert {answers[str(number)] for number in ADDED_LATELY} == {errno.ENOSYS}
