"""Kernel libraries as no author can submit them: compiled by hand, past every check of texts.

The sandbox is the last barrier, so its tests start where the others have failed.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import numpy as np
from emulator_harness import Kernel, raw

from greenfast.search.targets.emulator.build import EmulatorBuild, Module
from greenfast.search.targets.emulator.execute import (
    Buffer,
    Launch,
    PointerArgument,
    Run,
    RunResult,
    ScalarArgument,
)
from greenfast.search.targets.emulator.flags import kernel_flags
from greenfast.search.targets.emulator.native_build import INCLUDE

CALLED = "the candidate made the system call"
# Makes any system call. An argument of TEXT is the address of the bytes in `text`.
TEXT = -4242424242
ANY_CALL = """
extern "C" long syscall(long, ...);
extern "C" __global__ void k(const char* text, long long* out, long long number, long long a,
                             long long b, long long c, long long d, long long e, long long f) {
    if (threadIdx.x) return;
    long long words[] = {a, b, c, d, e, f};
    for (long long& word : words)
        if (word == -4242424242ll) word = (long long)text;
    out[0] = syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
"""


class HostileKernel(Kernel):
    """A text with entry `k` and any host code, as a library that the emulator loads."""

    def __init__(
        self, emulator: EmulatorBuild, text: str, folder: Path, *, flags: tuple[str, ...] = ()
    ) -> None:
        self.emulator = emulator
        unit = f"{text}\nGF_EMULATOR_ENTRY(k)\n"
        digest = hashlib.sha256((unit + repr(flags)).encode()).hexdigest()
        source, library = folder / f"{digest[:16]}.cpp", folder / f"{digest[:16]}.so"
        source.write_text(unit)
        prelude = emulator.folder / "plain" / "prelude.h"
        command = [
            emulator.compiler.path,
            *kernel_flags(emulator.compiler, "plain", (INCLUDE,)),
            "-include",
            str(prelude),
            *flags,
            "-shared",
            "-nostdlib",
            str(source),
            "-o",
            str(library),
            f"-L{emulator.folder}",
            "-lgf_runtime",
            "-lm",
            "-lc",
            "-lgcc",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        self.module = Module(library, digest, ("k",), "plain", 0.0)

    def once(self, **options) -> RunResult:
        """A run with one output of 64 floats."""
        return self({}, {"out": np.zeros(64, np.float32)}, **options)


def call_of(number: int, *words: int, text: str = "") -> Run:
    """A run of ANY_CALL that makes one system call."""
    buffers = (
        Buffer("text", "input", raw(np.frombuffer(text.encode() + b"\0", np.uint8))),
        Buffer("out", "output", np.zeros(8, np.uint8)),
    )
    padded = (number, *words, *[0] * (6 - len(words)))
    arguments = (
        PointerArgument("text"),
        PointerArgument("out"),
        *(ScalarArgument("int64", word) for word in padded),
    )
    return Run(f"call {number}", (Launch("k", (1, 1, 1), (32, 1, 1)),), buffers, arguments)


def blamed(result: RunResult, call: str) -> bool:
    """Whether the verdict is the candidate's, for this system call."""
    (fault,) = result.faults
    return (
        result.status == "crash"
        and fault.kind == "device_fault"
        and fault.sentence == f"{CALLED} {call}"
    )
