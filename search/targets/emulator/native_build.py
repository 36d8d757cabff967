"""Builds the emulator itself: runtime, gf-emulate, launcher, and headers of kernel libraries."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from greenfast.search.children import child_environment
from greenfast.search.errors import Fault
from greenfast.search.targets.emulator.absent_names import host_functions
from greenfast.search.targets.emulator.compiler_process import capped, interruptible
from greenfast.search.targets.emulator.device_preprocessor import (
    HOST_FUNCTIONS,
    HOST_MACROS,
    STUBS,
    host_macros,
    write_stubs,
)
from greenfast.search.targets.emulator.flags import (
    COMMON_FLAGS,
    FLAVOURS,
    NATIVE_FLAGS,
    SELDOM_RUN,
    kernel_flags,
)
from greenfast.search.targets.emulator.host_compiler import HostCompiler

HERE = Path(__file__).resolve().parent
NATIVE = HERE / "native"
INCLUDE = HERE / "include"
RUNTIME_LIBRARY = "libgf_runtime.so"
EXECUTABLE = "gf-emulate"
LAUNCHER = "gf-confine"
PROGRAMS = ("main.cpp", "confine_main.cpp")  # each a program; the others are the runtime


def build_emulator(compiler: HostCompiler, fresh: Path) -> None:
    """Build all of it into the empty folder `fresh`, in parallel. Fault when a compiler fails."""
    with ThreadPoolExecutor() as pool:
        parts = [
            pool.submit(_build_native, compiler, fresh),
            pool.submit(_build_launcher, compiler, fresh),
            pool.submit(_build_device_headers, compiler, fresh),
        ]
        parts += [
            pool.submit(_build_prelude, compiler, fresh / flavour, flavour) for flavour in FLAVOURS
        ]
    for part in parts:
        part.result()


def _build_native(compiler: HostCompiler, fresh: Path) -> None:
    """Build the runtime in two halves in parallel.

    Each half is one translation unit, so that it parses the standard headers once.
    """
    flags = (
        *COMMON_FLAGS,
        *compiler.machine_flags,
        *NATIVE_FLAGS,
        f"-I{INCLUDE}",
        f"-I{NATIVE}",
        "-pthread",
    )
    names = sorted(path.name for path in NATIVE.glob("*.cpp") if path.name not in PROGRAMS)
    halves = (
        ("often", [name for name in names if name not in SELDOM_RUN], ()),
        ("seldom", [name for name in names if name in SELDOM_RUN], ("-O1",)),
    )

    def compiled(half: tuple[str, list[str], tuple[str, ...]]) -> str:
        name, sources, extra_flags = half
        unit, compiled_file = fresh / f"{name}.cpp", str(fresh / f"{name}.o")
        unit.write_text("".join(f'#include "{source}"\n' for source in sources))
        _compiler_output(compiler, [*flags, *extra_flags, "-c", str(unit), "-o", compiled_file])
        return compiled_file

    with ThreadPoolExecutor() as pool:
        objects = list(pool.map(compiled, halves))
    runtime = fresh / RUNTIME_LIBRARY
    soname = f"-Wl,-soname,{RUNTIME_LIBRARY}"
    _compiler_output(compiler, [*flags, "-shared", *objects, "-o", str(runtime), soname, "-ldl"])
    program = [
        "-o",
        str(fresh / EXECUTABLE),
        f"-L{fresh}",
        "-lgf_runtime",
        "-Wl,-rpath,$ORIGIN",
        "-ldl",
    ]
    _compiler_output(compiler, [*flags, str(NATIVE / "main.cpp"), *program])


def _build_launcher(compiler: HostCompiler, fresh: Path) -> None:
    source, program = NATIVE / "confine_main.cpp", str(fresh / LAUNCHER)
    _compiler_output(
        compiler, ["-std=c++17", "-O1", "-Wall", "-Wextra", str(source), "-o", program]
    )


def _build_prelude(compiler: HostCompiler, folder: Path, flavour: str) -> None:
    folder.mkdir()
    header = INCLUDE / "gf_emulator" / "prelude.h"
    compiled = folder / "prelude.h.gch"
    # Included in its place when the compiler refuses the precompiled header.
    (folder / "prelude.h").write_text('#include "gf_emulator/prelude.h"\n')
    # No author's header, since this is not confined.
    flags = kernel_flags(compiler, flavour, (INCLUDE,))
    _compiler_output(compiler, [*flags, "-x", "c++-header", str(header), "-o", str(compiled)])


def _build_device_headers(compiler: HostCompiler, fresh: Path) -> None:
    write_stubs(INCLUDE, fresh / STUBS)
    prelude = str(INCLUDE / "gf_emulator" / "prelude.h")
    flags = kernel_flags(compiler, "checked", (INCLUDE,))
    definitions = _compiler_output(compiler, [*flags, "-E", "-dD", "-x", "c++-header", prelude])
    names = host_macros(definitions, INCLUDE)
    (fresh / HOST_MACROS).write_text("\n".join(sorted(names)))
    (fresh / HOST_FUNCTIONS).write_text("\n".join(sorted(host_functions(definitions, INCLUDE))))


def _compiler_output(compiler: HostCompiler, arguments: Sequence[str]) -> str:
    """Run the compiler on the emulator's own sources; its output. Fault when it fails."""
    process = subprocess.Popen(
        [compiler.path, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        env=child_environment(),
    )
    with interruptible(process):
        log, _ = process.communicate()
    if process.returncode != 0:
        raise Fault(
            f"the emulator does not build with {compiler.version}: {capped(log)}",
            code="emulator_build",
            mend="try another compiler through GREENFAST_CXX",
        )
    return log
