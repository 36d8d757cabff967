"""Compiles an examined text to a kernel library, in confined and killable processes.

A checked library of g++ is made by way of assembly, in which calls, returns and objects are
changed. Its text is compiled a second time with other flags for variables that are not set.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.cpu_time import Deadline
from greenfast.search.targets.emulator.compiler_folders import compiler_folders
from greenfast.search.targets.emulator.compiler_process import (
    CompilerFailed,
    Confinement,
    run_compiler,
)
from greenfast.search.targets.emulator.control_edges import with_checked_edges
from greenfast.search.targets.emulator.debug_sections import split_debug
from greenfast.search.targets.emulator.flags import (
    HEAP_CALLS,
    NO_FOLDING_FLAGS,
    WRAPPED_CALLS,
    kernel_flags,
)
from greenfast.search.targets.emulator.folded_constants import DUMP_FLAG, folded_variables
from greenfast.search.targets.emulator.host_compiler import HostCompiler
from greenfast.search.targets.emulator.native_build import INCLUDE, LAUNCHER, RUNTIME_LIBRARY
from greenfast.search.targets.emulator.object_gaps import with_gaps
from greenfast.search.targets.emulator.own_frames import with_own_frames_passed
from greenfast.search.targets.emulator.unset_variables import Place, unset_variables

CHECKED = "checked"
TEXT, ASSEMBLY, LIBRARY = "kernel.cu", "kernel.s", "kernel.so"  # in a work folder
OTHER, UNSET, FOLDED = ".other.so", ".unset.json", ".folded.json"  # files beside a library
EARLY = "early.txt"  # the dump of early passes
ZEROS = "-ftrivial-auto-var-init=zero"


@dataclass(frozen=True)
class LibraryCompiler:
    """The compiler of the emulator in `folder`; `include_dirs` hold the templates' headers."""

    compiler: HostCompiler
    folder: Path
    include_dirs: tuple[Path, ...]

    def compile(
        self,
        work: Path,
        beside: Path,
        flavour: str,
        deadline: Deadline,
        *,
        keeps_paths: bool = False,
    ) -> CompilerFailed | None:
        """Make LIBRARY of TEXT in `work`, and perhaps the files OTHER, UNSET and FOLDED beside it.

        `beside` is another folder. `deadline` holds for each process. With `keeps_paths`, a
        checked variable keeps its number on paths that do not set it. None: it succeeded.
        """
        if flavour == CHECKED and self.compiler.kind == "g++":
            more = NO_FOLDING_FLAGS if keeps_paths else (f"{DUMP_FLAG}={EARLY}",)
            with ThreadPoolExecutor(1) as threads:
                return self._checked(work, beside, threads, deadline, more)
        # The sanitizers' libraries are not linked: the runtime answers their calls. Any other
        # undefined name is an error.
        command = self._link(self._words(work, flavour), flavour)
        return run_compiler(command, work, deadline, self.confinement(flavour))

    def _checked(
        self,
        work: Path,
        beside: Path,
        threads: ThreadPoolExecutor,
        deadline: Deadline,
        more: Sequence[str],
    ) -> CompilerFailed | None:
        """`more`: flags beside those of the flavour."""
        confinement = self.confinement(CHECKED)
        shutil.copy(work / TEXT, beside)
        # At once: nearly every text needs it, and a search waits for the end.
        zeros = [*self._words(beside, CHECKED), *more, ZEROS]
        zeroed = threads.submit(_assembly, zeros, beside, deadline, confinement)
        words = [*self._words(work, CHECKED), *more]
        lines, failed = _assembly(words, work, deadline, confinement)
        if failed is not None:
            return failed
        stem = (work / LIBRARY).with_suffix("")
        if (folded := _folded_variables(work)) is not None:
            stem.with_suffix(FOLDED).write_text(json.dumps(folded))
        lines, debug = split_debug(lines)
        link = self._link([self.compiler.path, ASSEMBLY], CHECKED)
        unset = unset_variables(lines, lambda: split_debug(zeroed.result()[0])[0])
        if unset is not None:
            _write_assembly(unset.other, debug, beside / ASSEMBLY)
            other = threads.submit(run_compiler, link, beside, deadline, confinement)
        _write_assembly(lines, debug, work / ASSEMBLY)
        failed = run_compiler(link, work, deadline, confinement)
        if failed is None and unset is not None:
            failed = other.result()
            if failed is None:
                os.replace(beside / LIBRARY, stem.with_suffix(OTHER))
                stem.with_suffix(UNSET).write_text(json.dumps(unset.places))
        return failed

    def _words(self, work: Path, flavour: str) -> list[str]:
        """The compiler's words for TEXT in the folder `work`."""
        prelude = self.folder / flavour / "prelude.h"
        use_prelude = (
            ("-include", str(prelude))
            if self.compiler.kind == "g++"
            else ("-include-pch", f"{prelude}.gch")
        )
        flags = kernel_flags(self.compiler, flavour, (INCLUDE, *self.include_dirs))
        map_work = f"-fdebug-prefix-map={work}=."
        return [self.compiler.path, *flags, map_work, *use_prelude, "-x", "c++", TEXT]

    def _link(self, words: Sequence[str], flavour: str) -> list[str]:
        """The words that make LIBRARY of a text or its assembly."""
        return [
            *words,
            "-shared",
            "-nostdlib",
            "-x",
            "none",
            "-o",
            LIBRARY,
            f"-L{self.folder}",
            "-lgf_runtime",
            "-Wl,-z,defs",
            *HEAP_CALLS,
            *(WRAPPED_CALLS if flavour == CHECKED else ()),
            "-lm",
            "-lc",
            "-lgcc",
        ]

    def confinement(self, flavour: str) -> Confinement:
        """What a compiler of this flavour may read."""
        own = (self.folder / flavour, self.folder / RUNTIME_LIBRARY, INCLUDE, *self.include_dirs)
        return self.confined_to(*own)

    def confined_to(self, *own: Path) -> Confinement:
        """A compiler that may read these, and the compiler's own folders."""
        readable = (*compiler_folders(self.compiler.path), *map(str, own))
        return Confinement(self.folder / LAUNCHER, readable)


def _assembly(
    command: Sequence[str], work: Path, deadline: Deadline, confinement: Confinement
) -> tuple[list[str], CompilerFailed | None]:
    """The lines of assembly that a command of g++ makes, or why it failed."""
    failed = run_compiler([*command, "-S", "-o", "plain.s"], work, deadline, confinement)
    if failed is not None:
        return [], failed
    with open(work / "plain.s") as plain:
        return plain.readlines(), None


def _folded_variables(work: Path) -> tuple[Place, ...] | None:
    try:
        with open(work / EARLY, errors="replace") as dump:
            return folded_variables(dump)
    except FileNotFoundError:  # this build has no such dump
        return None


def _write_assembly(lines: Iterable[str], debug: Iterable[str], path: Path) -> None:
    with open(path, "w") as file:
        file.writelines(with_gaps(with_own_frames_passed(with_checked_edges(lines))))
        file.writelines(debug)
