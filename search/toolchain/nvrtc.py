"""Compiling a source with NVRTC: no GPU and no host compiler is needed."""

from __future__ import annotations

import base64
import importlib.metadata
import queue
import re
import signal
import threading
import zlib
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from greenfast.search.children import Child, ChildDied, ChildTimeout, Limits
from greenfast.search.cpu_time import Deadline, Starved, beside_others
from greenfast.search.digest import digest, text_digest
from greenfast.search.errors import Fault
from greenfast.search.kernels.template_text import Line
from greenfast.search.render import RenderedSource
from greenfast.search.text import shortened
from greenfast.search.toolchain import known_answer
from greenfast.search.toolchain.cache import ArtifactCache
from greenfast.search.toolchain.ptxas import EntryFigures, parse_log
from greenfast.search.toolchain.toolkit import Toolkit, installed_toolkit, private_toolkit_advice
from greenfast.search.verdict import Reason

COMPILE_DEADLINE_S = 60.0
COMPILE_MEMORY_BYTES = 8 * 2**30
LOG_BYTES = 64 * 1024
VERSION = re.compile(r"Cuda compilation tools, release [\d.]+, V(\d+\.\d+\.\d+)")
OPTIONS = ("--std=c++17", "--ptxas-options=-v")  # fixed: options are never free text


@dataclass(frozen=True)
class Cubin:
    """A compiled source; `code` loads with cuModuleLoadData."""

    source_digest: str
    arch: str
    code: bytes
    log: str
    entries: tuple[EntryFigures, ...]
    compile_s: float
    ptx_deflated: bytes = b""

    @property
    def ptx(self) -> str:
        """What the assembler was given; empty when the compiler did not hand it out."""
        return (
            zlib.decompress(self.ptx_deflated).decode(errors="replace") if self.ptx_deflated else ""
        )


@dataclass(frozen=True)
class CompileFailed:
    """The compiler refused the source, or did not come back; the log says what it said."""

    source_digest: str
    reason: Reason
    sentence: str
    log: str


class Toolchain:
    """Compiles sources in a pool of warm children; one call a thread at a time holds one child."""

    def __init__(
        self, cache_folder: Path, children: int, *, deadline_s: float = COMPILE_DEADLINE_S
    ) -> None:
        """`deadline_s`: processor time of a compile."""
        self._cache = ArtifactCache(cache_folder / "cubin")
        self._deadline = Deadline.of(deadline_s)
        self._idle: queue.LifoQueue[Child | None] = queue.LifoQueue()
        self._all: set[Child] = set()
        self._lock = threading.Lock()
        self._answer_lock, self._answered = threading.Lock(), False
        for _ in range(max(1, children)):
            self._idle.put(None)  # a child is started when it is first needed

    @cached_property
    def toolkit(self) -> Toolkit:
        """The installed library and headers; Fault when they are missing or of different releases."""
        return installed_toolkit()

    @cached_property
    def identity(self) -> tuple[tuple[str, str], ...]:
        """What a cubin depends on beside its source, by component: the names are the same for every version of CUDA."""
        core = ("cuda-core", importlib.metadata.version("cuda-core"))
        return (*self.toolkit.versions, core, ("options", " ".join(OPTIONS)))

    @property
    def include_dirs(self) -> tuple[str, ...]:
        """CUDA's headers, from the wheels."""
        return self.toolkit.include_dirs

    def require_right(self) -> None:
        """Fault when nothing can be compiled here, or the compiler is known to make wrong code. Asked before first use."""
        with self._answer_lock:
            if not self._answered:
                self._check_known_answer()
                self._answered = True

    def _check_known_answer(self) -> None:
        text = known_answer.SOURCE.read_text("utf-8")
        lines = tuple(
            Line(known_answer.SOURCE.name, number) for number in range(1, text.count("\n") + 1)
        )
        source = RenderedSource(text, text_digest(text), lines, text, (known_answer.ENTRY,), False)
        cubin = self.compile(source, known_answer.ARCH)
        name = f"NVRTC {self.toolkit.nvrtc_version}"
        if isinstance(cubin, CompileFailed):
            raise Fault(
                f"{name} cannot compile a kernel that is known to compile: {cubin.sentence}",
                code="toolchain_broken",
                mend=private_toolkit_advice(),
            )
        if wrong := known_answer.wrong_answer(cubin.code):
            raise Fault(
                f"{name} compiles a known kernel to wrong code ({wrong}), so it is not used",
                code="toolchain_wrong",
                mend=private_toolkit_advice(),
            )

    def compile(self, source: RenderedSource, arch: str) -> Cubin | CompileFailed:
        """The cubin of `source` for `arch` (sm_90 ...), from the cache when it was compiled before."""
        key = digest((source.digest, arch, self.identity, "with PTX"))
        if (found := self._cache.get(key)) is not None:
            record, code = found
            record["entries"] = tuple(EntryFigures(**entry) for entry in record["entries"])
            return Cubin(code=code, ptx_deflated=base64.b64decode(record.pop("ptx")), **record)
        request = {
            "source": source.marked(),
            "name": f"{source.digest[:16]}.cu",
            "arch": arch,
            "include": list(self.include_dirs),
            "libraries": list(self.toolkit.libraries),
            "log_bytes": LOG_BYTES,
        }
        try:
            reply = beside_others(lambda: self._call(request), "NVRTC")
        except ChildTimeout:
            return CompileFailed(
                source.digest,
                Reason.COMPILE_TIMEOUT,
                f"NVRTC did not finish within {self._deadline.cpu_s:g} s of processor time",
                "",
            )
        except ChildDied as died:
            return self._crashed(source, died)
        if reply["cubin"] is None:
            return self._refused(source, reply["log"])
        cubin = Cubin(
            source.digest,
            arch,
            base64.b64decode(reply["cubin"]),
            reply["log"],
            parse_log(reply["log"]),
            reply["compile_s"],
            base64.b64decode(reply["ptx"]),
        )
        self._check_version(cubin.ptx)
        record = asdict(cubin)
        code = record.pop("code")
        del record["ptx_deflated"]
        self._cache.put(key, {**record, "ptx": reply["ptx"]}, code)
        return cubin

    def _check_version(self, ptx: str) -> None:
        """Two releases of NVRTC make different code of one source, once wrong code: the one that ran is named."""
        says, wheel = VERSION.search(ptx[:1000]), dict(self.identity)["nvidia-cuda-nvrtc"]
        if says and says[1] != wheel:
            raise Fault(
                f"the package nvidia-cuda-nvrtc is {wheel}, but the library in it is {says[1]}",
                code="toolchain_mixed",
                mend="pip install --force-reinstall --no-deps nvidia-cuda-nvrtc==" + wheel,
            )

    def interrupt(self) -> None:
        """End the compiles in progress: their calls raise Fault."""
        with self._lock:
            for child in self._all:
                child.kill()

    def close(self) -> None:
        self.interrupt()

    def _call(self, request: dict) -> dict:
        child = self._idle.get()
        try:
            if child is not None and not child.alive:  # an interrupt ends the idle ones too
                self._forget(child)
                child.close()
                child = None
            if child is None:
                child = self._start()
            return child.call(request, self._deadline)
        except (ChildDied, ChildTimeout, Starved):
            self._forget(child)
            child = None
            raise
        finally:
            self._idle.put(child)

    def _start(self) -> Child:
        child = Child(
            "greenfast.search.toolchain.nvrtc_child", Limits(memory_bytes=COMPILE_MEMORY_BYTES)
        )
        with self._lock:
            self._all.add(child)
        return child

    def _forget(self, child: Child) -> None:
        with self._lock:
            self._all.discard(child)

    @staticmethod
    def _refused(source: RenderedSource, log: str) -> CompileFailed:
        if "out of memory" in log:
            return CompileFailed(
                source.digest,
                Reason.COMPILE_MEMORY,
                f"NVRTC needed more than {COMPILE_MEMORY_BYTES >> 20} MiB",
                log,
            )
        first = next(
            (line.strip() for line in log.splitlines() if "error" in line),
            "the compiler gave no message",
        )
        return CompileFailed(source.digest, Reason.COMPILE_ERROR, shortened(first), log)

    @staticmethod
    def _crashed(source: RenderedSource, died: ChildDied) -> CompileFailed:
        if died.signal_number in (
            signal.SIGSEGV,
            signal.SIGABRT,
            signal.SIGBUS,
            signal.SIGILL,
            signal.SIGFPE,
        ):
            name = signal.Signals(died.signal_number).name
            return CompileFailed(
                source.digest, Reason.COMPILE_CRASH, f"NVRTC crashed with {name}", died.tail
            )
        raise Fault(
            f"the compiling child was lost (exit {died.returncode}): {died.tail[-300:].strip()}",
            code="child_lost",
        )
