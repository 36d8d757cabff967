"""The emulator's C++, case by case: tests/native/*.cpp are small programs with the whole runtime.

g++ compiles the programs with warnings as errors and links them with the runtime's objects, which
the emulator has built for itself. The slow tests run every case once more with programs and runtime
under the address and undefined-behaviour sanitizers. The address sanitizer's stack checks are off:
they take fibers for overflows.
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
from greenfast.search.targets.emulator.build import EmulatorBuild
from greenfast.search.targets.emulator.flags import COMMON_FLAGS
from greenfast.search.targets.emulator.host_compiler import find_host_compiler
from greenfast.search.targets.emulator.native_build import INCLUDE, NATIVE, PROGRAMS
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
)
SANITIZED_FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
STRICT = {"g++": ("-Werror",), "clang++": ()}
STACKS_ARE_FIBERS = {"g++": ("--param", "asan-stack=0"), "clang++": ("-mllvm", "-asan-stack=0")}
# The programs that include it are compiled together, each in a namespace of its own: most of what
# they take are its templates.
COMMON_HEADER = "device.h"
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

    def __init__(self, cache: Path, names: list[str], *, sanitized: bool) -> None:
        self._compiler = find_host_compiler()
        kind = self._compiler.kind
        self._flags = (
            *FLAGS,
            *STRICT[kind],
            *((*SANITIZED_FLAGS, *STACKS_ARE_FIBERS[kind]) if sanitized else ()),
            *self._compiler.machine_flags,
            f"-I{INCLUDE}",
            f"-I{NATIVE}",
            f"-I{HERE}",
        )
        self._folder = cache / f"native-tests-{self._digest()[:16]}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._pool = ThreadPoolExecutor(usable_cores())
        build = self._sanitized_runtime if sanitized else lambda: _objects_of_the_emulator(cache)
        self._runtime = self._pool.submit(build)
        together = [
            name
            for name in names
            if f'#include "{COMMON_HEADER}"' in (HERE / f"{name}.cpp").read_text()
        ]
        several = self._pool.submit(self._programs, together) if together else None
        self._objects: dict[str, Future[Path]] = {
            name: several
            if several is not None and name in together
            else self._pool.submit(self._program, name)
            for name in names
        }

    def run(self, program: str, case: str) -> subprocess.CompletedProcess[str]:
        compiled = self._objects[program].result()
        path = compiled.with_suffix("")
        if not path.exists():
            self._compile(path, str(compiled), *self._runtime.result(), "-ldl")
        return subprocess.run(
            [path, case if path.name == program else f"{program}/{case}"],
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

    def _sanitized_runtime(self) -> list[str]:
        runtime = self._folder / "runtime.cpp"
        sources = sorted(
            source.name for source in NATIVE.glob("*.cpp") if source.name not in PROGRAMS
        )
        write_atomically(runtime, "".join(f'#include "{source}"\n' for source in sources).encode())
        return [str(self._once(self._folder / "runtime.o", "-c", str(runtime)))]

    def _program(self, name: str) -> Path:
        return self._once(self._folder / f"{name}.o", "-c", str(HERE / f"{name}.cpp"))

    def _programs(self, names: list[str]) -> Path:
        """All these programs in one object; their headers come first, outside the namespaces."""
        headers: dict[str, None] = {}
        for name in names:
            text = (HERE / f"{name}.cpp").read_text()
            headers.update(dict.fromkeys(re.findall(r"^#include .*\n", text, re.M)))
        bodies = (
            f'namespace program_{name} {{\n#include "{HERE / name}.cpp"\n}}\n' for name in names
        )
        text = "".join((*headers, *bodies))
        unit = self._folder / f"together-{hashlib.sha256(text.encode()).hexdigest()[:16]}.cpp"
        write_atomically(unit, text.encode())
        return self._once(unit.with_suffix(".o"), "-c", str(unit))

    def _once(self, path: Path, *words: str) -> Path:
        with open(path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process of this run may be at it
            if not path.exists():
                self._compile(path, *words)
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


def _objects_of_the_emulator(cache: Path) -> list[str]:
    build = EmulatorBuild(cache)
    build.prepare()
    return [str(path) for path in sorted(build.folder.glob("*.o"))]


def _selected(request) -> list[str]:
    """The programs of the module's selected tests."""
    return sorted(
        {
            item.callspec.params["program"]
            for item in request.session.items
            if item.module is request.module and hasattr(item, "callspec")
        }
    )


@pytest.fixture(scope="module")
def programs(request, artifacts):
    programs = Programs(artifacts, _selected(request), sanitized=False)
    yield programs
    programs.close()


@pytest.fixture(scope="module")
def sanitized_programs(request, artifacts):
    programs = Programs(artifacts, _selected(request), sanitized=True)
    yield programs
    programs.close()


def _is_quick(program: str) -> bool:
    """The kernels of tests/unit drive the parts that take device.h to be called."""
    return f'#include "{COMMON_HEADER}"' not in (HERE / f"{program}.cpp").read_text()


each_case = pytest.mark.parametrize(
    ("program", "case"),
    [
        pytest.param(
            program,
            case,
            marks=() if _is_quick(program) else pytest.mark.slow,
            id=f"{program}-{case}",
        )
        for program, case in CASES
    ],
)


@each_case
def test_native(programs, program, case):
    done = programs.run(program, case)
    assert done.returncode == 0, f"\n{done.stdout}{done.stderr[-4000:]}"


@pytest.mark.slow
@each_case
def test_native_under_sanitizers(sanitized_programs, program, case):
    done = sanitized_programs.run(program, case)
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
