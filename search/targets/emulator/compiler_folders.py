"""The files that a host compiler needs to read, according to the compiler itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from greenfast.search.children import child_environment
from greenfast.search.errors import Fault
from greenfast.search.targets.emulator.compiler_process import PASS_ENDED

PROGRAMS = ("cc1plus", "as", "collect2", "ld", "ld.lld", "ld.bfd", "ld.gold")
# A folder of libraries belongs to the compiler when it has one of these.
LIBRARIES = ("libc.so", "libc.so.6", "libm.so", "libm.so.6", "libgcc.a", "crti.o")
# The loader's list of libraries, without which a program starts more slowly.
LOADER_FILES = ("/etc/ld.so.cache",)


@lru_cache(maxsize=8)
def compiler_folders(compiler: str) -> tuple[str, ...]:
    """Folders and files that the compiler at this path reads, in the order of their names.

    Its programs and the libraries that they load, the system's headers, and the libraries that it
    links.
    """
    programs = [Path(compiler), *_programs(compiler)]
    own = _own_folder(compiler)
    paths = [*programs, *own, *_shared_libraries(programs), *_searched(compiler), *_told(compiler)]
    # Each by its name and by its real path: a name may be a link.
    named = {os.path.normpath(path) for path in paths} | {str(path.resolve()) for path in paths}
    return tuple(sorted({*named, *LOADER_FILES}))


def _answer(command: list[str], *, errors: bool = False) -> str:
    """The output of the command; empty if it does not run.

    Fault if something ends it twice before it has answered: what is found here is kept.
    """
    ended = _ended(command) or _ended(command)
    if ended is None:
        raise Fault(f"`{' '.join(command)}` was killed before it answered", code="child_lost")
    return ended.stderr if errors else ended.stdout


def _ended(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    """The command at its own end; None if something ended it or one of its passes."""
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
            env=child_environment({"LC_ALL": "C"}),
        )
    except subprocess.TimeoutExpired:
        return None
    except OSError:
        return subprocess.CompletedProcess(command, 1, "", "")
    return None if ended.returncode < 0 or PASS_ENDED.search(ended.stderr) else ended


def _programs(compiler: str) -> Iterator[Path]:
    for name in PROGRAMS:
        answer = _answer([compiler, f"-print-prog-name={name}"]).strip() or name
        path = Path(shutil.which(answer) or "")  # a bare name is looked up on the PATH
        if path.is_absolute() and path.is_file():
            yield path


def _own_folder(compiler: str) -> Iterator[Path]:
    """The folder of GCC's passes and the linker's plugin, not always beside its headers."""
    passes = Path(_answer([compiler, "-print-prog-name=cc1plus"]).strip())
    if passes.is_absolute() and "gcc" in passes.parts:
        yield passes.parent


def _shared_libraries(programs: list[Path]) -> Iterator[Path]:
    for line in _answer(["ldd", *map(str, programs)]).splitlines():
        for word in line.split():
            if word.startswith("/") and (path := Path(word)).is_file():
                yield path


def _searched(compiler: str) -> Iterator[Path]:
    """Its own folder, and those in which it looks for libraries and has one of the system's."""
    for line in _answer([compiler, "-print-search-dirs"]).splitlines():
        kind, _, listing = line.partition(": ")
        for word in listing.strip().removeprefix("=").split(":"):
            path = Path(word)
            if not path.is_absolute() or not path.is_dir():
                continue
            if kind == "install" or any((path / name).exists() for name in LIBRARIES):
                yield path


def _told(compiler: str) -> Iterator[Path]:
    """The folders that it searches for `#include <...>`, and the compiler behind a wrapper."""
    told = _answer([compiler, "-x", "c++", "-E", "-v", "/dev/null"], errors=True)
    before, _, listing = told.partition("search starts here:")
    for line in before.splitlines():
        if line.startswith("COLLECT_GCC="):
            yield Path(shutil.which(line.partition("=")[2]) or compiler)
        if line.startswith("Selected GCC installation: "):  # clang looks for it in this folder
            yield Path(line.partition(": ")[2]).parent.parent
    for line in listing.partition("End of search list")[0].splitlines():
        path = Path(line.removesuffix("(framework directory)").strip())
        if path.is_absolute() and path.is_dir():
            yield path
