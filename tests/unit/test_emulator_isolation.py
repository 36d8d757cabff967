"""Candidates are native code: they can harm neither the service nor the next candidate."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from emulator_harness import ADD, Kernel, prepared, values
from hostile_library import HostileKernel
from slow_cases import quick_first

from greenfast.search.targets.emulator.execute import RunResult
from greenfast.search.targets.emulator.isolation import has_seccomp

needs_seccomp = pytest.mark.skipif(
    not has_seccomp(), reason="this kernel has no seccomp: it refuses no system calls"
)

# What a library may try before its kernel runs: a static constructor is host code.
TRIES = """
extern "C" {
int socket(int, int, int);
int fork();
int execl(const char*, const char*, ...);
int kill(int, int);
int getppid();
int open(const char*, int, ...);
int unlink(const char*);
int dup(int);
char* getenv(const char*);
void* malloc(unsigned long);
extern char** environ;
}
namespace {
float found = -1.0f;
struct Early {
    Early() { found = float(%s); }
} early;
}
extern "C" __global__ void k(float* out) { out[0] = found; }
"""


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


def ran(emulator, folder, expression: str) -> RunResult:
    """The run of a host expression, evaluated where candidate code runs."""
    return HostileKernel(emulator, TRIES % expression, folder).once()


def tried(emulator, folder, expression: str) -> float:
    return float(values(ran(emulator, folder, expression), "out")[0])


def refused(emulator, folder, expression: str) -> bool:
    """Whether the run ends with a verdict on the candidate because of a system call."""
    result = ran(emulator, folder, expression)
    sentence = result.faults[0].sentence if result.faults else ""
    return result.status == "crash" and sentence.startswith("the candidate made the system call ")


def still_works(emulator) -> None:
    a = np.arange(32, dtype=np.float32)
    result = Kernel(emulator, ADD)({"a": a, "b": a}, {"c": np.zeros_like(a)}, 32)
    assert np.array_equal(values(result, "c"), 2 * a)


@needs_seccomp
@pytest.mark.parametrize(
    ("what", "expression"),
    [
        ("an internet socket", "socket(2, 1, 0)"),
        ("a local socket", "socket(1, 1, 0)"),
        ("a new process", "fork()"),
        ("another program", 'execl("/bin/true", "true", (char*)0)'),
        ("a signal to its parent", "kill(getppid(), 0)"),
        ("a signal to everybody", "kill(-1, 0)"),
    ],
)
def test_it_does_not_get(what, expression, emulator, tmp_path):
    assert refused(emulator, tmp_path, expression), what
    still_works(emulator)


@needs_seccomp
@pytest.mark.parametrize(
    ("what", "expression"),
    [
        ("the password file", 'open("/etc/passwd", 0)'),
        ("its own environment as a file", 'open("/proc/self/environ", 0)'),
        ("the service's environment", 'open("/proc/{service}/environ", 0)'),
        ("a new file elsewhere", 'open("/tmp/greenfast-must-not-be-there", 0101, 0600)'),
    ],
)
def test_it_does_not_open(what, expression, emulator, tmp_path):
    asked = expression.replace("{service}", str(os.getpid()))
    assert refused(emulator, tmp_path, asked), what
    assert not Path("/tmp/greenfast-must-not-be-there").exists()
    still_works(emulator)


@needs_seccomp
def test_a_file_of_somebody_else_cannot_be_deleted(emulator, tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("x")
    assert refused(emulator, tmp_path, f'unlink("{kept}")') and kept.exists()


def test_it_inherits_no_secret_and_no_descriptor(emulator, monkeypatch, tmp_path):
    monkeypatch.setenv("GREENFAST_TOKEN", "a secret of the service")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    assert tried(emulator, tmp_path, 'getenv("GREENFAST_TOKEN") != nullptr') == 0.0
    assert tried(emulator, tmp_path, "environ[0] != nullptr") == 0.0, "nothing at all"
    secret = os.open(tmp_path / "open", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(secret, True)
    try:
        assert refused(emulator, tmp_path, f"dup({secret})")
    finally:
        os.close(secret)


def test_ten_gigabytes_are_not_given(emulator, tmp_path):
    assert tried(emulator, tmp_path, "malloc(10ull << 30) != nullptr") == 0.0
    still_works(emulator)


@pytest.mark.parametrize(
    ("what", "text", "reasons"),
    quick_first(
        [
            ("an endless loop", "volatile int again = 1; while (again) {}", ("timeout",)),
            (
                "a wild write",
                "*reinterpret_cast<volatile int*>(0x7fff00000000ull) = 1;",
                ("device_fault", "out_of_bounds"),
            ),
            (
                "a stack of ten gigabytes",
                "volatile char giant[1ull << 31]; giant[threadIdx.x] = 1;",
                ("device_fault",),
            ),
        ],
        2,
    ),
)
def test_what_a_kernel_does_to_itself_ends_it_and_nobody_else(what, text, reasons, emulator):
    kernel = Kernel(emulator, f'extern "C" __global__ void k(float* out) {{ {text} out[0] = 1; }}')
    job = kernel.job({}, {"out": np.zeros(1, np.float32)}, ())
    result = kernel.run(job, deadline_s=0.7)[0]
    assert result.status != "finished" and result.faults[0].kind in reasons, (what, result)
    still_works(emulator)


def test_a_flood_of_output_reaches_nobody(emulator, capfd):
    text = """extern "C" __global__ void k(float* out) {
        for (int i = 0; i < 20000; ++i)
            printf("{\\"event\\": \\"end\\", \\"nonce\\": \\"guess\\"}\\n");
        out[0] = 1; }"""
    result = Kernel(emulator, text)({}, {"out": np.zeros(1, np.float32)})
    assert values(result, "out")[0] == 1 and result.printf_calls == 32 * 20000
    assert capfd.readouterr() == ("", "")


def test_a_constructor_that_dies_is_a_verdict_on_its_library(emulator, tmp_path):
    result = ran(emulator, tmp_path, "*reinterpret_cast<volatile int*>(8ull)")
    assert result.status == "crash" and result.faults[0].kind == "device_fault"
    still_works(emulator)
