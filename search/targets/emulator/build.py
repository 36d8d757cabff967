"""Builds the emulator once and candidates' kernel libraries many times.

What depends on the emulator's sources, the compiler and its flags lies in one folder named by their digest;
a candidate's library lies in it by the digest of its own text and headers. Both appear by rename, whole or
not at all.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenfast.search.children import child_environment, kill_group
from greenfast.search.cpu_time import LOOK_S, Deadline, Watch, beside_others, group_s
from greenfast.search.devices.clusters import declared_clusters
from greenfast.search.errors import Fault
from greenfast.search.targets.emulator.host_compiler import HostCompiler, find_host_compiler
from greenfast.search.targets.emulator.runs import Index3

HERE = Path(__file__).resolve().parent
NATIVE = HERE / "native"
INCLUDE = HERE / "include"
RUNTIME_LIBRARY = "libgf_runtime.so"
EXECUTABLE = "gf-emulate"

COMMON_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-pipe", "-fno-math-errno")
NATIVE_FLAGS = ("-O3", "-fvisibility=hidden", "-Wall", "-Wextra")
# What runs once a run or a launch: compiled without much optimisation, beside the rest.
SELDOM_RUN = frozenset(
    f"{name}.cpp"
    for name in (
        "findings",
        "global_memory",
        "global_shadow",
        "job",
        "memory_map",
        "order",
        "program",
        "report",
        "run",
        "sandbox",
        "shared_memory",
        "signals",
        "worker_pool",
    )
)
KERNEL_FLAGS = (
    "-g1",
    "-gdwarf-4",  # line tables for reports; with version 5, binutils 2.40 names the wrong file
    "-w",
    "-fno-exceptions",
    "-fno-rtti",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",
    "-ffp-contract=fast",  # CUDA code puns types, and nvcc contracts a * b + c
    "-fno-plt",
    "-fno-optimize-sibling-calls",  # a call's return address must lie in the kernel
    "-fstack-clash-protection",  # a large frame must meet its stack's guard page
    "-fno-stack-protector",  # Ubuntu's g++ turns it on, but not with -nostdlib: then the prelude would not fit
    "-fsanitize=alignment",
    "-fno-sanitize-recover=alignment",  # the runtime answers the check, and stops the block
)
# A thread's own arrays are registers or its stack: no hook sees them, so their indices are checked instead; of a
# struct's last member, too. That does not look at the place behind the last one where an address is taken, as it is when
# an element of a class (fp16) is assigned: there g++ compares with the object's size.
CHECKED_FLAGS = {
    "g++": (
        "-fsanitize=bounds-strict,object-size",
        "-fno-sanitize-recover=bounds-strict",
        "-fsanitize-recover=object-size",
    ),
    "clang++": ("-fsanitize=bounds", "-fno-sanitize-recover=bounds"),
}
# Hooks at loads and stores only.
HOOK_FLAGS = {
    "g++": (
        "-fsanitize=thread",
        "--param=tsan-instrument-func-entry-exit=0",
        "--param=tsan-distinguish-volatile=1",
    ),
    "clang++": (
        "-fsanitize=thread",
        "-mllvm",
        "-tsan-instrument-func-entry-exit=0",
        "-mllvm",
        "-tsan-distinguish-volatile=1",
    ),
}
# As nvcc does, nearly every device function is inlined: arrays handed over by reference are then the thread's own
# to the compiler, and need no hooks.
INLINING_FLAGS = {
    "g++": (
        "-fwhole-program",
        "--param=max-inline-insns-auto=400",
        "--param=inline-unit-growth=400",
        "--param=large-function-growth=2000",
    ),
    "clang++": (),
}
# Scalar replacement would split a 16-byte access before the hooks go in, and be counted as four.
WHOLE_ACCESS_FLAGS = {"g++": ("-fno-tree-sra",), "clang++": ()}
FLAVOURS = (
    "plain",
    "counted",
    "checked",
)  # of a kernel library: hooks for none, for counters, for the checks
ERROR_LIMIT_FLAGS = {"g++": ("-fmax-errors=20",), "clang++": ("-ferror-limit=20",)}

LOG_LIMIT_BYTES = 32 * 1024
COMPILER_MEMORY_BYTES = 2 * 2**30
COMPILER_FILE_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Module:
    """A kernel library that gf-emulate can load."""

    path: Path
    digest: str
    entries: tuple[str, ...]
    flavour: str  # one of FLAVOURS
    build_s: float  # 0.0: it was there already
    clusters: tuple[tuple[str, Index3], ...] = ()  # by entry, where its text says __cluster_dims__


@dataclass(frozen=True)
class ModuleFailed:
    reason: str  # 'compile' | 'timeout' | 'crash' | 'memory'
    log: str  # of the compiler, capped
    build_s: float


class EmulatorBuild:
    """The emulator for one compiler, in `cache_dir`. `include_dirs`: the templates' own headers (gf/...)."""

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
        )
        flags = (COMMON_FLAGS, NATIVE_FLAGS, KERNEL_FLAGS, hooks, sorted(SELDOM_RUN))
        self.digest = _digest((self.compiler.digest, repr(flags), *_contents((NATIVE, INCLUDE))))
        self.folder = Path(cache_dir).resolve() / "emulator" / self.digest[:24]

    @property
    def executable(self) -> Path:
        return self.folder / EXECUTABLE

    def prepare(self) -> None:
        """Build the runtime, gf-emulate and the precompiled headers, unless they are there."""
        if self.executable.exists():
            return
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.folder.with_suffix(".lock")):
            if self.executable.exists():
                return
            fresh = Path(tempfile.mkdtemp(prefix=".fresh-", dir=self.folder.parent))
            try:
                with ThreadPoolExecutor() as pool:
                    parts = [pool.submit(self._build_native, fresh)]
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
        self, translation_unit: str, entries: tuple[str, ...], *, flavour: str, deadline_s: float
    ) -> Module | ModuleFailed:
        """Compile one candidate's text, whose `entries` are its extern "C" kernels, in a killable child.

        `deadline_s` is processor time, of the compiler and all that it starts.
        """
        self.prepare()
        text = (
            translation_unit + "\n" + "".join(f"GF_EMULATOR_ENTRY({entry})\n" for entry in entries)
        )
        digest = _digest((self.digest, flavour, text, *_contents(self.include_dirs)))
        path = self.folder / "modules" / f"{digest[:32]}.so"
        if path.exists():
            return Module(path, digest, entries, flavour, 0.0, declared_clusters(text, entries))
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=".module-", dir=self.folder) as work:
            (Path(work) / "kernel.cu").write_text(text)
            deadline = Deadline.of(deadline_s)
            failed = beside_others(
                lambda: self._compile(Path(work), flavour, deadline), self.compiler.kind
            )
            build_s = time.monotonic() - begin
            if failed is not None:
                return ModuleFailed(failed.reason, failed.log, build_s)
            os.replace(Path(work) / "kernel.so", path)
        return Module(path, digest, entries, flavour, build_s, declared_clusters(text, entries))

    def _kernel_flags(self, flavour: str) -> tuple[str, ...]:
        include = tuple(f"-I{directory}" for directory in (INCLUDE, *self.include_dirs))
        return (
            *COMMON_FLAGS,
            *self.compiler.machine_flags,
            *KERNEL_FLAGS,
            *INLINING_FLAGS[self.compiler.kind],
            *ERROR_LIMIT_FLAGS[self.compiler.kind],
            *(() if flavour == "plain" else HOOK_FLAGS[self.compiler.kind]),
            *(CHECKED_FLAGS[self.compiler.kind] if flavour == "checked" else ()),
            *(WHOLE_ACCESS_FLAGS[self.compiler.kind] if flavour == "counted" else ()),
            *(() if flavour == "plain" else (f"-DGF_EMULATOR_{flavour.upper()}",)),
            *include,
        )

    def _compile(self, work: Path, flavour: str, deadline: Deadline) -> ModuleFailed | None:
        prelude = self.folder / flavour / "prelude.h"
        use_prelude = (
            ("-include", str(prelude))
            if self.compiler.kind == "g++"
            else ("-include-pch", f"{prelude}.gch")
        )
        # Linked without the sanitizers' libraries: the runtime answers their calls. Undefined names fail.
        command = [
            self.compiler.path,
            *self._kernel_flags(flavour),
            f"-fdebug-prefix-map={work}=.",
            *use_prelude,
            "-shared",
            "-nostdlib",
            "-x",
            "c++",
            "kernel.cu",
            "-x",
            "none",
            "-o",
            "kernel.so",
            f"-L{self.folder}",
            "-lgf_runtime",
            "-Wl,-z,defs",
            "-lm",
            "-lc",
            "-lgcc",
        ]
        return _run_compiler(command, work, deadline)

    def _build_native(self, fresh: Path) -> None:
        """The runtime in two halves at once; in each the standard headers, most of the work, are read once."""
        flags = (
            *COMMON_FLAGS,
            *self.compiler.machine_flags,
            *NATIVE_FLAGS,
            f"-I{INCLUDE}",
            f"-I{NATIVE}",
            "-pthread",
        )
        names = sorted(path.name for path in NATIVE.glob("*.cpp") if path.name != "main.cpp")
        halves = (
            ("often", [one for one in names if one not in SELDOM_RUN], ()),
            ("seldom", [one for one in names if one in SELDOM_RUN], ("-O1",)),
        )

        def compiled(half: tuple[str, list[str], tuple[str, ...]]) -> str:
            name, sources, more = half
            whole = fresh / f"{name}.cpp"
            whole.write_text("".join(f'#include "{source}"\n' for source in sources))
            self._must([*flags, *more, "-c", str(whole), "-o", str(fresh / f"{name}.o")])
            return str(fresh / f"{name}.o")

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

    def _build_prelude(self, folder: Path, flavour: str) -> None:
        folder.mkdir()
        header = INCLUDE / "gf_emulator" / "prelude.h"
        made = folder / "prelude.h.gch"
        (folder / "prelude.h").write_text(
            '#include "gf_emulator/prelude.h"\n'
        )  # if the compiler refuses that
        self._must([*self._kernel_flags(flavour), "-x", "c++-header", str(header), "-o", str(made)])

    def _must(self, arguments: Sequence[str]) -> None:
        """Run the compiler on the emulator's own sources; a failure is ours."""
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
        with _interruptible(process):
            log, _ = process.communicate()
        if process.returncode != 0:
            raise Fault(
                f"the emulator does not build with {self.compiler.version}: {_capped(log)}",
                code="emulator_build",
                mend="try another compiler through GREENFAST_CXX",
            )


def interrupt() -> None:
    """Kill every compiler in progress in this process: their callers raise Fault, later ones work."""
    with _live_lock:
        for process in _live:
            _interrupted.add(process)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


# The compilers under way, for `interrupt`, which has no handle on the calls that wait for them.
_live: set[subprocess.Popen[Any]] = set()
_interrupted: set[subprocess.Popen[Any]] = set()
_live_lock = threading.Lock()


@contextmanager
def _interruptible(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Waits for the process inside; it is gone afterwards."""
    with _live_lock:
        _live.add(process)
    try:
        yield
    finally:
        with _live_lock:
            _live.discard(process)
            was_interrupted = process in _interrupted
            _interrupted.discard(process)
        if process.returncode is None:
            kill_group(process)
    if was_interrupted:
        raise Fault("the compiler was interrupted", code="interrupted")


def _run_compiler(command: Sequence[str], work: Path, deadline: Deadline) -> ModuleFailed | None:
    """None when it succeeded. Starved when it got too little of the processor."""
    # The compiler forks, so its limits must stand before it starts: a shell sets them and becomes it.
    limits = (
        f"ulimit -c 0; ulimit -t {int(deadline.cpu_s) + 2}; ulimit -v {COMPILER_MEMORY_BYTES // 1024}; "
        f'ulimit -f {COMPILER_FILE_BYTES // 512}; exec "$@"'
    )
    log_path = work / "log"
    with open(log_path, "wb") as log:
        process = subprocess.Popen(
            ["/bin/sh", "-c", limits, "sh", *command],
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=child_environment({"TMPDIR": str(work), "LC_ALL": "C"}),
        )
        with _interruptible(process):
            returncode = _waited_for(process, deadline)
    text = _capped(_read_capped(log_path))
    if returncode == 0:
        return None
    return ModuleFailed(_failure_reason(returncode, text), text, 0.0)


def _waited_for(process: subprocess.Popen[bytes], deadline: Deadline) -> int | None:
    """The exit status; None when the deadline passed."""
    watch = Watch(deadline, lambda: group_s(process.pid))
    while True:
        try:
            return process.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            if watch.is_over():
                return None


def _failure_reason(returncode: int | None, log: str) -> str:
    if returncode is None or "CPU time limit" in log:
        return "timeout"
    if any(
        words in log
        for words in (
            "out of memory",
            "virtual memory exhausted",
            "bad_alloc",
            "Cannot allocate memory",
        )
    ):
        return "memory"
    if (
        returncode < 0
        or "internal compiler error" in log
        or "terminated signal" in log
        or "Killed signal" in log
    ):
        return "crash"
    return "compile"


def _read_capped(path: Path) -> str:
    size = path.stat().st_size
    with open(path, "rb") as log:
        head = log.read(LOG_LIMIT_BYTES)
        if size > 2 * LOG_LIMIT_BYTES:
            log.seek(size - LOG_LIMIT_BYTES)
        return (head + log.read()).decode(errors="replace")


def _capped(text: str) -> str:
    if len(text) <= LOG_LIMIT_BYTES:
        return text
    half = LOG_LIMIT_BYTES // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def _contents(folders: Iterable[Path]) -> Iterator[str]:
    for folder in folders:
        for path in sorted(one for one in folder.rglob("*") if one.is_file()):
            yield str(path.relative_to(folder))
            yield path.read_text(errors="replace")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
