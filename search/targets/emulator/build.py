"""Builds the emulator once, and a kernel library for each candidate.

The emulator's folder is named by the digest of its sources, the compiler and its flags. A
candidate's library lies in it, named by the digest of its own text and headers. Both are renamed
into place when they are complete.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from greenfast.search.cpu_time import Deadline, beside_others
from greenfast.search.devices.clusters import declared_clusters
from greenfast.search.errors import Fault
from greenfast.search.kernels.tables import ENTRY_ALIAS
from greenfast.search.targets.emulator.absent_names import with_names_of_text, with_own_names
from greenfast.search.targets.emulator.compiler_process import (
    LOG,
    CompilerFailed,
    disk_full,
    require_space,
    run_compiler,
)
from greenfast.search.targets.emulator.device_preprocessor import (
    HOST_FUNCTIONS,
    HOST_MACROS,
    MACROS,
    MOST_CHARACTERS,
    MOST_JUDGED_CHARACTERS,
    PREPROCESSED,
    STAMP_MACROS,
    STUBS,
    UNKNOWN_MACROS,
    headers_of_cuda,
    preprocess_command,
    refused_length,
    refused_memory,
    refused_number,
    refused_question,
    stub_names,
    with_answers,
)
from greenfast.search.targets.emulator.early_macros import refused_macro
from greenfast.search.targets.emulator.flags import (
    ALLOCATIONS,
    flags_text,
)
from greenfast.search.targets.emulator.host_compiler import HostCompiler, find_host_compiler
from greenfast.search.targets.emulator.library_compiler import (
    FOLDED,
    LIBRARY,
    OTHER,
    TEXT,
    UNSET,
    LibraryCompiler,
)
from greenfast.search.targets.emulator.native_build import (
    EXECUTABLE,
    INCLUDE,
    NATIVE,
    build_emulator,
)
from greenfast.search.targets.emulator.object_check import object_fault
from greenfast.search.targets.emulator.runs import Index3
from greenfast.search.targets.emulator.source_rewriting import Refused
from greenfast.search.targets.emulator.source_spelling import refused_spelling
from greenfast.search.targets.emulator.source_text import device_text, included_headers
from greenfast.search.targets.emulator.source_tokens import PreprocessedText
from greenfast.search.targets.emulator.unset_variables import Place
from greenfast.search.toolchain.cache_room import CacheRoom, mark_used
from greenfast.search.toolchain.includes import refused_include

log = logging.getLogger("greenfast.emulator")
HERE = Path(__file__).resolve().parent
DEFAULT_ARCH = "sm_90"
REFUSED = "refused"  # the reason of a ModuleFailed
CALLS = "/gf_emulator/entries"  # absolute, as no file of an author's is
# What decides which texts and objects are refused, and how objects lie: a cached library was made
# by the same rules.
RULES = (
    "../../rendering/logical_lines",
    "../../toolchain/includes",
    "absent_names",
    "bit_fields",
    "class_bodies",
    "control_edges",
    "debug_sections",
    "device_preprocessor",
    "dynamic_shared",
    "early_macros",
    "folded_constants",
    "header_macros",
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
    "source_attributes",
    "source_names",
    "source_rewriting",
    "source_rules",
    "source_scopes",
    "source_spelling",
    "source_text",
    "source_tokens",
    "unset_variables",
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

    @cached_property
    def uses_heap(self) -> bool:
        """Whether its code can call `new` or `malloc`."""
        self.require()
        library = self.path.read_bytes()
        return any(b"%s\0" % name in library for name in ALLOCATIONS)

    @property
    def with_other_number(self) -> Module | None:
        """The library with another number in variables that are not set (unset_variables.py).

        None where no such number is left in it, and for flavours that are not checked.
        """
        path = self.path.with_suffix(OTHER)
        if path.exists():
            return replace(self, path=path, digest=f"{self.digest}/other")
        self.require()  # otherwise the cache has lost both
        return None

    def require(self) -> None:
        """Fault if the cache has lost the library; it is not removed in the next minute."""
        if not mark_used(self.path):
            raise Fault("a compiled kernel was removed from the cache", code="cache_entry_removed")

    @property
    def folded_places(self) -> tuple[Place, ...] | None:
        """Lines of variables that may have a constant on paths that do not set them.

        None if there are no such variables.
        """
        return _places(self.path.with_suffix(FOLDED))

    @property
    def unset_places(self) -> tuple[Place, ...]:
        """Lines that use the number of a variable that is not set."""
        return _places(self.path.with_suffix(UNSET)) or ()


def _places(path: Path) -> tuple[Place, ...] | None:
    try:
        return tuple((file, line) for file, line in json.loads(path.read_text()))
    except FileNotFoundError:
        return None


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
        rules = ((HERE / f"{name}.py").read_text() for name in RULES)
        self.digest = _digest(
            (self.compiler.digest, flags_text(self.compiler), *rules, *_contents((NATIVE, INCLUDE)))
        )
        self.folder = Path(cache_dir).resolve() / "emulator" / self.digest[:24]
        self.library_compiler = LibraryCompiler(self.compiler, self.folder, self.include_dirs)
        self._room = CacheRoom(Path(cache_dir).resolve())
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
                "compiling the emulator with %s; this happens once for each data folder and takes "
                "one or two minutes of processor time",
                self.compiler.kind,
            )
            with _no_full_disk(self.folder.parent):
                self._build()

    def _build(self) -> None:
        fresh = Path(tempfile.mkdtemp(prefix=".fresh-", dir=self.folder.parent))
        try:
            build_emulator(self.compiler, fresh)
            (fresh / "modules").mkdir()
            os.rename(fresh, self.folder)
        except Fault:
            require_space(fresh)
            raise
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
        keeps_paths: bool = False,
    ) -> Module | ModuleFailed:
        """Compile one candidate's text in a killable child, as code for the GPU `arch`.

        `entries` are its extern "C" kernels. `deadline_s` is processor time, of the compiler and
        all processes that it starts. Fault when the machine gives it too little processor time.
        With `keeps_paths`, a checked library's variables keep their number on paths that do not set
        them (folded_constants.py). Without `is_examined`, host code is compiled as it is: only for
        tests of the sandbox.
        """
        if sentence := refused_include(translation_unit, "kernel.cu"):
            return ModuleFailed("compile", sentence, 0.0)
        self.prepare()
        # These lines are none of the author's: a call from them is not named in a finding.
        calls = f'#line 1 "{CALLS}"\n' + "".join(map(_entry_call, entries))
        key = (translation_unit, calls, arch, str(is_examined), *_contents(self.include_dirs))
        digest = _digest((self.digest, flavour, str(keeps_paths), *key))
        path = self.folder / "modules" / f"{digest[:32]}.so"
        clusters = declared_clusters(translation_unit, entries)
        if mark_used(path):
            return Module(path, digest, entries, flavour, 0.0, clusters)
        begin = time.monotonic()
        text: str | Refused | CompilerFailed = translation_unit
        if is_examined:
            text = self.examined(translation_unit, arch=arch, deadline_s=deadline_s)
        if isinstance(text, Refused):
            return ModuleFailed(REFUSED, text.sentence, time.monotonic() - begin)
        if isinstance(text, CompilerFailed):
            return ModuleFailed(text.reason, text.log, time.monotonic() - begin)
        with self._work_folder() as work, self._work_folder() as beside:
            (work / TEXT).write_text(f"{text}\n{calls}")
            deadline = Deadline.of(deadline_s)
            failed = beside_others(
                lambda: self.library_compiler.compile(
                    work, beside, flavour, deadline, keeps_paths=keeps_paths
                ),
                self.compiler.kind,
            )
            if failed is None and is_examined:
                failed = object_failure(work / LIBRARY, entries, text)
            build_s = time.monotonic() - begin
            if failed is not None:
                return ModuleFailed(failed.reason, with_names_of_text(failed.log), build_s)
            # Before the library, whose presence says that all is.
            for ending in (OTHER, UNSET, FOLDED):
                if (work / f"kernel{ending}").exists():
                    os.replace(work / f"kernel{ending}", path.with_suffix(ending))
            os.replace(work / LIBRARY, path)
        self._room.add(sum(file.stat().st_size for file in path.parent.glob(f"{path.stem}.*")))
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
        macros, functions = (
            frozenset((self.folder / name).read_text().split())
            for name in (HOST_MACROS, HOST_FUNCTIONS)
        )
        own = with_own_names(expanded, functions, included_headers(expanded), self.include_dirs)
        return device_text(own, self.headers, macros)

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
        own = tuple(INCLUDE / name for name in (MACROS, STAMP_MACROS, UNKNOWN_MACROS))
        confinement = self.library_compiler.confined_to(stubs, *own, *self.include_dirs)
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
            most = MOST_JUDGED_CHARACTERS if is_judged else MOST_CHARACTERS
            if failed is not None and failed.reason == "memory":
                return refused_memory(translation_unit, most)
            if failed is not None:
                return refused_question(failed.log) or failed
            if is_judged and (refused := refused_number(work / LOG)) is not None:
                return refused
            text = (work / PREPROCESSED).read_text(errors="replace")
            return refused_length(text, most) or text

    @contextmanager
    def _work_folder(self) -> Iterator[Path]:
        with (
            _no_full_disk(self.folder),
            tempfile.TemporaryDirectory(prefix=".module-", dir=self.folder) as work,
        ):
            yield Path(work)


@contextmanager
def _no_full_disk(folder: Path) -> Iterator[None]:
    """A block that writes below `folder`; Fault `disk_full` where the disk takes no more."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(folder) from error
        raise


def _entry_call(entry: str) -> str:
    """The line that makes an entry callable. An alias is a reference, others are symbols."""
    macro = "GF_EMULATOR_ALIAS" if entry.startswith(ENTRY_ALIAS) else "GF_EMULATOR_ENTRY"
    return f"{macro}({entry})\n"


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
