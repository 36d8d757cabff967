"""The C++ compiler that builds CUDA source for this machine's processor."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.errors import Fault

NAMES = ("g++", "clang++")
OVERRIDE = "GREENFAST_CXX"
# The features that -march=x86-64-v3 requires, as named in /proc/cpuinfo.
X86_64_V3 = frozenset(("avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"))


class CompilerMissing(Fault):
    """There is no usable host compiler, so the emulator cannot be built."""

    code = "host_compiler_missing"


@dataclass(frozen=True)
class HostCompiler:
    path: str
    kind: str  # 'g++' | 'clang++'
    version: str  # the first line of --version
    machine_flags: tuple[str, ...]  # for this processor
    poison_flags: tuple[str, ...] = ()  # so that a variable without a value has a bad one

    @property
    def digest(self) -> str:
        """Names the compiler, its version and its flags for this processor."""
        identity = "\n".join((self.path, self.version, *self.machine_flags))
        return hashlib.sha256(identity.encode()).hexdigest()


def find_host_compiler() -> HostCompiler:
    """The compiler that GREENFAST_CXX names, else the first of g++ and clang++ on PATH.

    CompilerMissing if there is none.
    """
    override = os.environ.get(OVERRIDE)
    for name in (override,) if override else NAMES:
        path = shutil.which(name)
        if path is not None:
            return _describe(path)
    missing = (
        f"{OVERRIDE} names {override!r}, which is not a program"
        if override
        else "neither g++ nor clang++ is on the PATH"
    )
    raise CompilerMissing(
        f"the emulator needs a C++ compiler: {missing}", mend="apt-get install g++"
    )


def _describe(path: str) -> HostCompiler:
    try:
        ended = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CompilerMissing(f"`{path} --version` failed", mend="apt-get install g++") from error
    version = ended.stdout.splitlines()[0] if ended.stdout else ""
    kind = "clang++" if "clang" in version.lower() else "g++"
    return HostCompiler(path, kind, version, _machine_flags(), _poison_flags(kind, version))


def _poison_flags(kind: str, version: str) -> tuple[str, ...]:
    """From g++ 12 and clang++ 16 on, a kernel that uses a value it never set is always wrong."""
    number = re.search(r"\b(\d+)\.\d+\.\d+\b", version)
    first = 12 if kind == "g++" else 16
    return ("-ftrivial-auto-var-init=pattern",) if number and int(number[1]) >= first else ()


def _machine_flags() -> tuple[str, ...]:
    if platform.machine() != "x86_64":
        return ()
    try:
        information = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ()
    flags = next((line for line in information.splitlines() if line.startswith("flags")), "")
    return ("-march=x86-64-v3",) if set(flags.split()) >= X86_64_V3 else ()
