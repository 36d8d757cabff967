"""The emulator's C++, case by case: tests/native/*.cpp are small programs with the whole runtime.

g++ compiles programs and runtime with warnings as errors, and with the address and
undefined-behaviour sanitizers. The address sanitizer's stack checks are off: they take fibers for
overflows.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from greenfast.search.cores import usable_cores
from greenfast.search.targets.emulator.build import INCLUDE, NATIVE
from greenfast.search.targets.emulator.flags import COMMON_FLAGS
from greenfast.search.targets.emulator.host_compiler import find_host_compiler
from greenfast.search.toolchain.cache import write_atomically

HERE = Path(__file__).parent
FLAGS = (
    *(flag for flag in COMMON_FLAGS if flag != "-O2"),
    "-O0",
    "-g1",
    "-Wall",
    "-Wextra",
    "-pthread",
    "-fno-optimize-sibling-calls",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
)
COMPILERS_OWN = {
    "g++": ("-Werror", "--param", "asan-stack=0"),
    "clang++": ("-mllvm", "-asan-stack=0"),
}
SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}  # dropped fibers leak
DEADLINE_S = 60


def _text(path: Path) -> str:
    """A program's text with the programs that it includes."""
    return re.sub(
        r'^#include "(\w+\.cpp)"$',
        lambda match: _text(HERE / match.group(1)),
        path.read_text(),
        flags=re.M,
    )


CASES = [
    (path.stem, case)
    for path in sorted(HERE.glob("*.cpp"))
    for case in re.findall(r"^CASE\((\w+)\)", _text(path), re.M)
]


class Programs:
    """Compiles programs on all cores; each is kept under the digest of everything in it."""

    def __init__(self, cache: Path, names: list[str]) -> None:
        self._compiler = find_host_compiler()
        self._flags = (
            *FLAGS,
            *COMPILERS_OWN[self._compiler.kind],
            *self._compiler.machine_flags,
            f"-I{INCLUDE}",
            f"-I{NATIVE}",
            f"-I{HERE}",
        )
        self._folder = cache / f"native-tests-{self._digest()[:16]}"
        self._folder.mkdir(parents=True, exist_ok=True)
        runtime = self._folder / "runtime.cpp"
        sources = sorted(
            source.name for source in NATIVE.glob("*.cpp") if not source.name.endswith("main.cpp")
        )
        write_atomically(runtime, "".join(f'#include "{source}"\n' for source in sources).encode())
        self._pool = ThreadPoolExecutor(usable_cores())
        self._runtime = self._pool.submit(self._object, runtime)
        self._objects: dict[str, Future[Path]] = {
            name: self._pool.submit(self._object, HERE / f"{name}.cpp") for name in names
        }

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        path = self._folder / program
        if not path.exists():
            self._compile(
                path, str(self._objects[program].result()), str(self._runtime.result()), "-ldl"
            )
        return subprocess.run(
            [path, *words],
            env={**os.environ, **SANITIZERS},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _digest(self) -> str:
        files = sorted([*HERE.glob("*.[ch]*"), *NATIVE.iterdir(), *INCLUDE.rglob("*.*h*")])
        parts = [
            self._compiler.digest,
            *self._flags,
            *(file.read_text() for file in files if file.is_file()),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _object(self, source: Path) -> Path:
        path = self._folder / f"{source.stem}.o"
        with open(path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process of this run may be at it
            if not path.exists():
                self._compile(path, "-c", str(source))
        return path

    def _compile(self, path: Path, *words: str) -> None:
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        done = subprocess.run(
            [self._compiler.path, *self._flags, *words, "-o", partial],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        partial.replace(path)


@pytest.fixture(scope="module")
def programs(request, artifacts):
    selected = {
        item.callspec.params["program"]
        for item in request.session.items
        if item.module is request.module and hasattr(item, "callspec")
    }
    programs = Programs(artifacts, sorted(selected))
    yield programs
    programs.close()


@pytest.mark.parametrize(
    ("program", "case"), CASES, ids=[f"{program}-{case}" for program, case in CASES]
)
def test_native(programs, program, case):
    done = programs.run(program, case)
    assert done.returncode == 0, f"\n{done.stdout}{done.stderr[-4000:]}"


def test_a_claim_that_does_not_hold_is_shown_with_its_line(artifacts, tmp_path):
    source = tmp_path / "wrong.cpp"
    source.write_text(
        '#include "claims.h"\nCASE(wrong) {\n    const int two = 3;\n    SAME(two, 2);\n'
        "    CLAIM(two == 2);\n}\n"
    )
    subprocess.run(
        [find_host_compiler().path, f"-I{HERE}", source, "-o", tmp_path / "wrong"], check=True
    )
    done = subprocess.run(
        [tmp_path / "wrong", "wrong"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (
        1,
        f"{source}:4: two is 3, not 2\n{source}:5: two == 2\n",
    )
