"""Builds the emulator once, and a kernel library for each candidate.

The emulator's folder is named by the digest of its sources, the compiler and its flags. A
candidate's library lies in it, named by the digest of its own text and headers. Both are renamed
into place when they are complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.children import child_environment
from greenfast.search.cpu_time import Deadline, beside_others
from greenfast.search.devices.clusters import declared_clusters
from greenfast.search.errors import Fault
from greenfast.search.targets.emulator.compiler_folders import compiler_folders
from greenfast.search.targets.emulator.compiler_process import (
    CompilerFailed,
    Confinement,
    capped,
    interruptible,
    run_compiler,
)
from greenfast.search.targets.emulator.device_preprocessor import (
    HOST_MACROS,
    MACROS,
    MOST_CHARACTERS,
    MOST_JUDGED_CHARACTERS,
    PREPROCESSED,
    STAMP_MACROS,
    STUBS,
    headers_of_cuda,
    host_macros,
    preprocess_command,
    refused_length,
    refused_question,
    stub_names,
    with_answers,
    write_stubs,
)
from greenfast.search.targets.emulator.early_macros import refused_macro
from greenfast.search.targets.emulator.flags import (
    CHECKED_FLAGS,
    COMMON_FLAGS,
    ERROR_LIMIT_FLAGS,
    FLAVOURS,
    HEAP_CALLS,
    HOOK_FLAGS,
    INLINING_FLAGS,
    KERNEL_FLAGS,
    LINE_TABLE_FLAGS,
    NATIVE_FLAGS,
    SELDOM_RUN,
    WHOLE_ACCESS_FLAGS,
    WRAPPED_CALLS,
)
from greenfast.search.targets.emulator.host_compiler import HostCompiler, find_host_compiler
from greenfast.search.targets.emulator.object_check import object_fault
from greenfast.search.targets.emulator.object_gaps import with_gaps
from greenfast.search.targets.emulator.own_frames import with_own_frames_passed
from greenfast.search.targets.emulator.runs import Index3
from greenfast.search.targets.emulator.source_spelling import refused_spelling
from greenfast.search.targets.emulator.source_text import Refused, device_text
from greenfast.search.targets.emulator.source_tokens import PreprocessedText
from greenfast.search.toolchain.includes import refused_include

log = logging.getLogger("greenfast.emulator")
HERE = Path(__file__).resolve().parent
NATIVE = HERE / "native"
INCLUDE = HERE / "include"
RUNTIME_LIBRARY = "libgf_runtime.so"
EXECUTABLE = "gf-emulate"
LAUNCHER = "gf-confine"
PROGRAMS = ("main.cpp", "confine_main.cpp")  # each a program; the others are the runtime
DEFAULT_ARCH = "sm_90"
REFUSED = "refused"  # the reason of a ModuleFailed
# What decides which texts and objects are refused, and how objects lie: a cached library was made
# by the same rules.
RULES = (
    "class_bodies",
    "device_preprocessor",
    "dynamic_shared",
    "early_macros",
    "inline_assembly",
    "object_check",
    "object_gaps",
    "own_frames",
    "ptx_arithmetic",
    "ptx_conversion",
    "ptx_memory",
    "ptx_statement",
    "ptx_text",
    "ptx_values",
    "ptx_warp",
    "source_rules",
    "source_spelling",
    "source_text",
    "source_tokens",
)
TEXTS_KEPT = 8  # preprocessed texts, each for the three flavours of a library


@dataclass(frozen=True)
class Module:
    """A kernel library that gf-emulate can load."""

    path: Path
    digest: str
    entries: tuple[str, ...]
    flavour: str  # one of FLAVOURS
    build_s: float  # 0.0: it was in the cache
    clusters: tuple[tuple[str, Index3], ...] = ()  # by entry, where it has __cluster_dims__


@dataclass(frozen=True)
class ModuleFailed:
    reason: str  # as CompilerFailed's, or 'refused': the text or its object is no CUDA C++
    log: str  # the compiler's, capped; of a refusal its sentence
    build_s: float


class EmulatorBuild:
    """The emulator for one compiler, below `cache_dir`.

    `include_dirs` hold the templates' own headers (gf/...).
    """

    def __init__(
        self,
        cache_dir: Path,
        compiler: HostCompiler | None = None,
        include_dirs: tuple[Path, ...] = (),
    ) -> None:
        self.compiler = compiler or find_host_compiler()
        self.include_dirs = tuple(Path(directory).resolve() for directory in include_dirs)
        hooks = (
            HOOK_FLAGS[self.compiler.kind],
            WHOLE_ACCESS_FLAGS[self.compiler.kind],
            INLINING_FLAGS[self.compiler.kind],
            CHECKED_FLAGS[self.compiler.kind],
            LINE_TABLE_FLAGS[self.compiler.kind],
        )
        flags = (
            (COMMON_FLAGS, NATIVE_FLAGS, KERNEL_FLAGS, hooks),
            (sorted(SELDOM_RUN), WRAPPED_CALLS, HEAP_CALLS),
        )
        rules = ((HERE / f"{name}.py").read_text() for name in RULES)
        self.digest = _digest(
            (self.compiler.digest, repr(flags), *rules, *_contents((NATIVE, INCLUDE)))
        )
        self.folder = Path(cache_dir).resolve() / "emulator" / self.digest[:24]
        self._texts: OrderedDict[str, str | Refused | CompilerFailed] = OrderedDict()
        self._texts_lock = threading.Lock()

    @property
    def executable(self) -> Path:
        return self.folder / EXECUTABLE

    def prepare(self) -> None:
        """Build the runtime, gf-emulate and the precompiled headers, unless they are cached."""
        if self.executable.exists():
            return
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.folder.with_suffix(".lock")):
            if self.executable.exists():
                return
            log.warning(
                "compiling the emulator with %s; this happens once for a data folder and takes up "
                "to a minute or two of processor time",
                self.compiler.kind,
            )
            fresh = Path(tempfile.mkdtemp(prefix=".fresh-", dir=self.folder.parent))
            try:
                with ThreadPoolExecutor() as pool:
                    parts = [
                        pool.submit(self._build_native, fresh),
                        pool.submit(self._build_launcher, fresh),
                        pool.submit(self._build_device_headers, fresh),
                    ]
                    parts += [
                        pool.submit(self._build_prelude, fresh / flavour, flavour)
                        for flavour in FLAVOURS
                    ]
                for part in parts:
                    part.result()
                (fresh / "modules").mkdir()
                os.rename(fresh, self.folder)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)

    def build_module(
        self,
        translation_unit: str,
        entries: tuple[str, ...],
        *,
        flavour: str,
        deadline_s: float,
        arch: str = DEFAULT_ARCH,
        is_examined: bool = True,
    ) -> Module | ModuleFailed:
        """Compile one candidate's text in a killable child, as code for the GPU `arch`.

        `entries` are its extern "C" kernels. `deadline_s` is processor time, of the compiler and
        all processes that it starts. Fault when the machine gives it too little processor time.
        Without `is_examined`, host code is compiled as it is: only for tests of the sandbox.
        """
        if sentence := refused_include(translation_unit, "kernel.cu"):
            return ModuleFailed("compile", sentence, 0.0)
        self.prepare()
        key = (translation_unit, *entries, arch, str(is_examined), *_contents(self.include_dirs))
        digest = _digest((self.digest, flavour, *key))
        path = self.folder / "modules" / f"{digest[:32]}.so"
        clusters = declared_clusters(translation_unit, entries)
        if path.exists():
            return Module(path, digest, entries, flavour, 0.0, clusters)
        begin = time.monotonic()
        text: str | Refused | CompilerFailed = translation_unit
        if is_examined:
            text = self.examined(translation_unit, arch=arch, deadline_s=deadline_s)
        if isinstance(text, Refused):
            return ModuleFailed(REFUSED, text.sentence, time.monotonic() - begin)
        if isinstance(text, CompilerFailed):
            return ModuleFailed(text.reason, text.log, time.monotonic() - begin)
        with self._work_folder() as work:
            calls = "".join(f"GF_EMULATOR_ENTRY({entry})\n" for entry in entries)
            (work / "kernel.cu").write_text(f"{text}\n{calls}")
            deadline = Deadline.of(deadline_s)
            failed = beside_others(
                lambda: self._compile(work, flavour, deadline), self.compiler.kind
            )
            if failed is None and is_examined:
                failed = object_failure(work / "kernel.so", entries, text)
            build_s = time.monotonic() - begin
            if failed is not None:
                return ModuleFailed(failed.reason, failed.log, build_s)
            os.replace(work / "kernel.so", path)
        return Module(path, digest, entries, flavour, build_s, clusters)

    def examined(
        self, translation_unit: str, *, arch: str, deadline_s: float
    ) -> str | Refused | CompilerFailed:
        """The text as the emulator's compiler gets it: preprocessed as NVRTC does, and judged.

        The last few answers are kept: a candidate's libraries share their text.
        """
        if sentence := refused_include(translation_unit, "kernel.cu"):
            return CompilerFailed("compile", sentence)
        if refused := refused_spelling(translation_unit, "kernel.cu"):
            return refused
        if refused := refused_macro(translation_unit, "kernel.cu", self.include_dirs):
            return refused
        self.prepare()
        key = _digest((translation_unit, arch, *_contents(self.include_dirs)))
        with self._texts_lock:
            if key in self._texts:
                return self._texts[key]
        text = self._preprocessed(translation_unit, arch, Deadline.of(deadline_s))
        with self._texts_lock:
            self._texts[key] = text
            if len(self._texts) > TEXTS_KEPT:
                self._texts.popitem(last=False)
        return text

    def _preprocessed(
        self, translation_unit: str, arch: str, deadline: Deadline
    ) -> str | Refused | CompilerFailed:
        expanded = self._expanded(translation_unit, arch, deadline, is_judged=True)
        if not isinstance(expanded, str):
            return expanded
        macros = (self.folder / HOST_MACROS).read_text().split()
        return device_text(expanded, self.headers, frozenset(macros))

    def expanded(
        self, translation_unit: str, *, arch: str, deadline_s: float
    ) -> str | Refused | CompilerFailed:
        """The text after preprocessing, before anything in it is judged."""
        self.prepare()
        return self._expanded(translation_unit, arch, Deadline.of(deadline_s), is_judged=False)

    @property
    def headers(self) -> frozenset[str]:
        """The names of the headers that a text may include."""
        return stub_names(self.folder / STUBS)

    def _expanded(
        self, translation_unit: str, arch: str, deadline: Deadline, *, is_judged: bool
    ) -> str | Refused | CompilerFailed:
        stubs = self.folder / STUBS
        own = (INCLUDE / MACROS, INCLUDE / STAMP_MACROS)
        confinement = self._confined_to(stubs, *own, *self.include_dirs)
        command = preprocess_command(
            self.compiler, INCLUDE, stubs, self.include_dirs, arch, is_judged=is_judged
        )
        with self._work_folder() as work:
            (work / "kernel.cu").write_text(
                with_answers(translation_unit, headers_of_cuda(INCLUDE))
            )
            failed = beside_others(
                lambda: run_compiler(command, work, deadline, confinement), self.compiler.kind
            )
            if failed is not None:
                return refused_question(failed.log) or failed
            text = (work / PREPROCESSED).read_text(errors="replace")
            most = MOST_JUDGED_CHARACTERS if is_judged else MOST_CHARACTERS
            return refused_length(text, most) or text

    @contextmanager
    def _work_folder(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix=".module-", dir=self.folder) as work:
            yield Path(work)

    def _kernel_flags(self, flavour: str, include_dirs: tuple[Path, ...]) -> tuple[str, ...]:
        include = tuple(f"-I{directory}" for directory in (INCLUDE, *include_dirs))
        return (
            *COMMON_FLAGS,
            *self.compiler.machine_flags,
            *self.compiler.poison_flags,
            *KERNEL_FLAGS,
            *LINE_TABLE_FLAGS[self.compiler.kind],
            *INLINING_FLAGS[self.compiler.kind],
            *ERROR_LIMIT_FLAGS[self.compiler.kind],
            *(() if flavour == "plain" else HOOK_FLAGS[self.compiler.kind]),
            *(CHECKED_FLAGS[self.compiler.kind] if flavour == "checked" else ()),
            *(WHOLE_ACCESS_FLAGS[self.compiler.kind] if flavour == "counted" else ()),
            *(() if flavour == "plain" else (f"-DGF_EMULATOR_{flavour.upper()}",)),
            *include,
        )

    def _compile(self, work: Path, flavour: str, deadline: Deadline) -> CompilerFailed | None:
        prelude = self.folder / flavour / "prelude.h"
        use_prelude = (
            ("-include", str(prelude))
            if self.compiler.kind == "g++"
            else ("-include-pch", f"{prelude}.gch")
        )
        confinement = self._confinement(flavour)
        # The sanitizers' libraries are not linked: the runtime answers their calls. Any other
        # undefined name is an error.
        compiled = [
            self.compiler.path,
            *self._kernel_flags(flavour, self.include_dirs),
            f"-fdebug-prefix-map={work}=.",
            *use_prelude,
        ]
        source = ["-x", "c++", "kernel.cu"]
        if flavour == "checked" and self.compiler.kind == "g++":
            assembly = [*compiled, *source, "-S", "-o", "plain.s"]
            failed = run_compiler(assembly, work, deadline, confinement)
            if failed is not None:
                return failed
            with open(work / "plain.s") as plain, open(work / "kernel.s", "w") as spaced:
                spaced.writelines(with_gaps(with_own_frames_passed(plain)))
            compiled, source = [self.compiler.path], ["kernel.s"]
        command = [
            *compiled,
            "-shared",
            "-nostdlib",
            *source,
            "-x",
            "none",
            "-o",
            "kernel.so",
            f"-L{self.folder}",
            "-lgf_runtime",
            "-Wl,-z,defs",
            *HEAP_CALLS,
            *(WRAPPED_CALLS if flavour == "checked" else ()),
            "-lm",
            "-lc",
            "-lgcc",
        ]
        return run_compiler(command, work, deadline, confinement)

    def _confinement(self, flavour: str) -> Confinement:
        own = (self.folder / flavour, self.folder / RUNTIME_LIBRARY, INCLUDE, *self.include_dirs)
        return self._confined_to(*own)

    def _confined_to(self, *own: Path) -> Confinement:
        readable = (*compiler_folders(self.compiler.path), *map(str, own))
        return Confinement(self.folder / LAUNCHER, readable)

    def _build_native(self, fresh: Path) -> None:
        """Build the runtime in two halves in parallel.

        Each half is one translation unit, so that it parses the standard headers once.
        """
        flags = (
            *COMMON_FLAGS,
            *self.compiler.machine_flags,
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
            self._must([*flags, *extra_flags, "-c", str(unit), "-o", compiled_file])
            return compiled_file

        with ThreadPoolExecutor() as pool:
            objects = list(pool.map(compiled, halves))
        runtime = fresh / RUNTIME_LIBRARY
        soname = f"-Wl,-soname,{RUNTIME_LIBRARY}"
        self._must([*flags, "-shared", *objects, "-o", str(runtime), soname, "-ldl"])
        program = [
            "-o",
            str(fresh / EXECUTABLE),
            f"-L{fresh}",
            "-lgf_runtime",
            "-Wl,-rpath,$ORIGIN",
            "-ldl",
        ]
        self._must([*flags, str(NATIVE / "main.cpp"), *program])

    def _build_launcher(self, fresh: Path) -> None:
        source, program = NATIVE / "confine_main.cpp", str(fresh / LAUNCHER)
        self._must(["-std=c++17", "-O1", "-Wall", "-Wextra", str(source), "-o", program])

    def _build_prelude(self, folder: Path, flavour: str) -> None:
        folder.mkdir()
        header = INCLUDE / "gf_emulator" / "prelude.h"
        compiled = folder / "prelude.h.gch"
        # Included in its place when the compiler refuses the precompiled header.
        (folder / "prelude.h").write_text('#include "gf_emulator/prelude.h"\n')
        flags = self._kernel_flags(flavour, ())  # no author's header, since this is not confined
        self._must([*flags, "-x", "c++-header", str(header), "-o", str(compiled)])

    def _build_device_headers(self, fresh: Path) -> None:
        write_stubs(INCLUDE, fresh / STUBS)
        prelude = str(INCLUDE / "gf_emulator" / "prelude.h")
        definitions = self._must(
            [*self._kernel_flags("checked", ()), "-E", "-dD", "-x", "c++-header", prelude]
        )
        names = host_macros(definitions, INCLUDE)
        (fresh / HOST_MACROS).write_text("\n".join(sorted(names)))

    def _must(self, arguments: Sequence[str]) -> str:
        """Run the compiler on the emulator's own sources; its output. Fault when it fails."""
        process = subprocess.Popen(
            [self.compiler.path, *arguments],
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
                f"the emulator does not build with {self.compiler.version}: {capped(log)}",
                code="emulator_build",
                mend="try another compiler through GREENFAST_CXX",
            )
        return log


def object_failure(path: Path, entries: Sequence[str], text: str) -> CompilerFailed | None:
    """Why a built library is not loaded; None: it holds the candidate's kernels and no more."""
    fault = object_fault(path.read_bytes(), frozenset(f"gf_entry_{entry}" for entry in entries))
    if fault is None:
        return None
    place = f"{PreprocessedText(text).place_of_name(fault.name)}: " if fault.name else ""
    return CompilerFailed(REFUSED, place + fault.sentence)


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def _contents(folders: Iterable[Path]) -> Iterator[str]:
    for folder in folders:
        for path in sorted(entry for entry in folder.rglob("*") if entry.is_file()):
            yield str(path.relative_to(folder))
            yield path.read_text(errors="replace")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
