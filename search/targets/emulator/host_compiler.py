"""The C++ compiler that turns CUDA source into code for this machine's own processor."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.errors import Fault

NAMES = ("g++", "clang++")
OVERRIDE = "GREENFAST_CXX"
# What -march=x86-64-v3 presumes, in /proc/cpuinfo's words.
X86_64_V3 = frozenset(("avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"))


class CompilerMissing(Fault):
    """No usable host compiler: the emulator cannot be built."""

    code = "host_compiler_missing"


@dataclass(frozen=True)
class HostCompiler:
    path: str
    kind: str  # 'g++' | 'clang++'
    version: str  # the first line of --version
    machine_flags: tuple[str, ...]  # what this processor allows

    @property
    def digest(self) -> str:
        """Changes with the compiler and with the code it may produce here."""
        identity = "\n".join((self.path, self.version, *self.machine_flags))
        return hashlib.sha256(identity.encode()).hexdigest()


def find_host_compiler() -> HostCompiler:
    """The compiler that GREENFAST_CXX names, else the first of g++ and clang++ on the PATH."""
    wanted = os.environ.get(OVERRIDE)
    for name in (wanted,) if wanted else NAMES:
        path = shutil.which(name)
        if path is not None:
            return _describe(path)
    missing = (
        f"{OVERRIDE} names {wanted!r}, which is no program"
        if wanted
        else "neither g++ nor clang++ is on the PATH"
    )
    raise CompilerMissing(
        f"the emulator needs a C++ compiler: {missing}", mend="apt-get install g++"
    )


def _describe(path: str) -> HostCompiler:
    try:
        answer = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CompilerMissing(
            f"{path} --version does not answer", mend="apt-get install g++"
        ) from error
    version = answer.stdout.splitlines()[0] if answer.stdout else ""
    kind = "clang++" if "clang" in version.lower() else "g++"
    return HostCompiler(path=path, kind=kind, version=version, machine_flags=_machine_flags())


def _machine_flags() -> tuple[str, ...]:
    if platform.machine() != "x86_64":
        return ()
    try:
        information = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ()
    flags = next((line for line in information.splitlines() if line.startswith("flags")), "")
    return ("-march=x86-64-v3",) if set(flags.split()) >= X86_64_V3 else ()
