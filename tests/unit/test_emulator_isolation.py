"""Candidates are native code: they can harm neither the service nor the next candidate."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from emulator_harness import ADD, Kernel, prepared, values

from greenfast.search.errors import Fault
from greenfast.search.targets.emulator.isolation import has_seccomp, landlock_version

needs_seccomp = pytest.mark.skipif(
    not has_seccomp(), reason="this kernel has no seccomp: network and processes stay open"
)
needs_landlock = pytest.mark.skipif(
    not landlock_version(), reason="this kernel has no Landlock: files stay open"
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


def tried(emulator, expression: str) -> float:
    """The value of a host expression, evaluated where candidate code runs."""
    return float(
        values(
            Kernel(emulator, TRIES % expression, is_examined=False)(
                {}, {"out": np.zeros(1, np.float32)}
            ),
            "out",
        )[0]
    )


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
def test_it_does_not_get(what, expression, emulator):
    assert tried(emulator, expression) == -1.0, what
    still_works(emulator)


@needs_landlock
@pytest.mark.parametrize(
    ("what", "expression"),
    [
        ("the password file", 'open("/etc/passwd", 0)'),
        ("its own environment as a file", 'open("/proc/self/environ", 0)'),
        ("the service's environment", 'open("/proc/{service}/environ", 0)'),
        ("a new file elsewhere", 'open("/tmp/greenfast-must-not-be-there", 0101, 0600)'),
    ],
)
def test_it_does_not_open(what, expression, emulator):
    assert tried(emulator, expression.replace("{service}", str(os.getpid()))) == -1.0, what
    assert not Path("/tmp/greenfast-must-not-be-there").exists()
    still_works(emulator)


@needs_landlock
def test_a_file_of_somebody_else_cannot_be_deleted(emulator, tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("x")
    assert tried(emulator, f'unlink("{kept}")') == -1.0 and kept.exists()


def test_it_inherits_no_secret_and_no_descriptor(emulator, monkeypatch, tmp_path):
    monkeypatch.setenv("GREENFAST_TOKEN", "a secret of the service")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    assert tried(emulator, 'getenv("GREENFAST_TOKEN") != nullptr') == 0.0
    assert tried(emulator, "environ[0] != nullptr && environ[1] != nullptr") == 0.0, "LC_ALL alone"
    secret = os.open(tmp_path / "open", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(secret, True)
    try:
        assert tried(emulator, f"dup({secret})") == -1.0
    finally:
        os.close(secret)


def test_ten_gigabytes_are_not_given(emulator):
    assert tried(emulator, "malloc(10ull << 30) != nullptr") == 0.0
    still_works(emulator)


@pytest.mark.parametrize(
    ("what", "text", "reasons"),
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
)
def test_what_a_kernel_does_to_itself_ends_it_and_nobody_else(what, text, reasons, emulator):
    kernel = Kernel(emulator, f'extern "C" __global__ void k(float* out) {{ {text} out[0] = 1; }}')
    job = kernel.job({}, {"out": np.zeros(1, np.float32)}, ())
    result = kernel.run(job, deadline_s=2.0)[0]
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


def test_a_constructor_that_dies_is_our_fault_and_no_verdict(emulator):
    kernel = Kernel(emulator, TRIES % "*reinterpret_cast<volatile int*>(8ull)", is_examined=False)
    with pytest.raises(Fault):
        kernel({}, {"out": np.zeros(1, np.float32)})
    still_works(emulator)
