"""Compiling a source with NVRTC: no GPU and no host compiler is needed."""

from __future__ import annotations

import base64
import importlib.metadata
import importlib.util
import queue
import re
import signal
import threading
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from search.children import Child, ChildDied, ChildTimeout, Limits
from search.cpu_time import Deadline, Starved, beside_others
from search.digest import digest
from search.errors import Fault
from search.render import RenderedSource
from search.toolchain.cache import ArtifactCache
from search.toolchain.ptxas import EntryFigures, parse_log
from search.verdict import Reason

COMPILE_DEADLINE_S = 60.0
COMPILE_MEMORY_BYTES = 8 * 2**30
LOG_BYTES = 64 * 1024
COMPONENTS = ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cuda-cccl")
VERSION = re.compile(r"Cuda compilation tools, release [\d.]+, V(\d+\.\d+\.\d+)")
OPTIONS = ("--std=c++17", "--ptxas-options=-v")        # fixed: options are never free text


@dataclass(frozen=True)
class Layout:
    """How a major version of CUDA is packed: the wheel of each of COMPONENTS, and folders below site-packages/nvidia."""

    wheels: tuple[str, ...]
    include: tuple[str, ...]


# Where both are installed, the loader of NVRTC takes that of CUDA 13, as layout_of does.
LAYOUTS = (
    Layout(COMPONENTS, ("cu13/include", "cu13/include/cccl")),
    Layout(("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-runtime-cu12", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-cccl-cu12"),
           ("cuda_runtime/include", "cuda_nvcc/include", "cuda_cccl/include")),
)


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
        return zlib.decompress(self.ptx_deflated).decode(errors="replace") if self.ptx_deflated else ""


@dataclass(frozen=True)
class CompileFailed:
    """The compiler refused the source, or did not come back; the log says what it said."""

    source_digest: str
    reason: Reason
    sentence: str
    log: str


class Toolchain:
    """Compiles sources in a pool of warm children; one call a thread at a time holds one child."""

    def __init__(self, cache_folder: Path, children: int, *, deadline_s: float = COMPILE_DEADLINE_S) -> None:
        """`deadline_s`: processor time of a compile."""
        self._cache = ArtifactCache(cache_folder / "cubin")
        self._deadline = Deadline.of(deadline_s)
        self._idle: queue.LifoQueue[Child | None] = queue.LifoQueue()
        self._all: set[Child] = set()
        self._lock = threading.Lock()
        for _ in range(max(1, children)):
            self._idle.put(None)               # a child is started when it is first needed

    @cached_property
    def _layout(self) -> Layout:
        return layout_of(is_installed)

    @cached_property
    def identity(self) -> tuple[tuple[str, str], ...]:
        """What a cubin depends on beside its source, by component: the names are the same for every version of CUDA."""
        wheels = (*zip(COMPONENTS, self._layout.wheels), ("cuda-core", "cuda-core"))
        try:
            versions = tuple((component, importlib.metadata.version(wheel)) for component, wheel in wheels)
        except importlib.metadata.PackageNotFoundError as error:
            raise Fault(f"the wheel {error.name} is not installed, so nothing can be compiled",
                        code="toolchain_missing", mend="run `make setup`") from error
        return (*versions, ("options", " ".join(OPTIONS)))

    @cached_property
    def include_dirs(self) -> tuple[str, ...]:
        """CUDA's headers, from the wheels."""
        spec = importlib.util.find_spec("nvidia")
        for root in spec.submodule_search_locations if spec and spec.submodule_search_locations else ():
            folders = [Path(root) / one for one in self._layout.include]
            if (folders[0] / "cuda_fp16.h").is_file():
                return tuple(map(str, folders))
        raise Fault("CUDA's headers are not installed, so nothing can be compiled", code="toolchain_missing",
                    mend="run `make setup`")

    def compile(self, source: RenderedSource, arch: str) -> Cubin | CompileFailed:
        """The cubin of `source` for `arch` (sm_90 ...), from the cache when it was compiled before."""
        key = digest((source.digest, arch, self.identity, "with PTX"))
        if (found := self._cache.get(key)) is not None:
            record, code = found
            record["entries"] = tuple(EntryFigures(**one) for one in record["entries"])
            return Cubin(code=code, ptx_deflated=base64.b64decode(record.pop("ptx")), **record)
        request = {"source": source.marked(), "name": f"{source.digest[:16]}.cu", "arch": arch,
                   "include": list(self.include_dirs), "log_bytes": LOG_BYTES}
        try:
            reply = beside_others(lambda: self._call(request), "NVRTC")
        except ChildTimeout:
            return CompileFailed(source.digest, Reason.COMPILE_TIMEOUT,
                                 f"NVRTC did not finish within {self._deadline.cpu_s:g} s of processor time", "")
        except ChildDied as died:
            return self._crashed(source, died)
        if reply["cubin"] is None:
            return self._refused(source, reply["log"])
        cubin = Cubin(source.digest, arch, base64.b64decode(reply["cubin"]), reply["log"],
                      parse_log(reply["log"]), reply["compile_s"], base64.b64decode(reply["ptx"]))
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
            raise Fault(f"the wheel nvidia-cuda-nvrtc is {wheel}, but the library that was loaded is {says[1]}",
                        code="toolchain_mixed",
                        mend="let no other CUDA come first on LD_LIBRARY_PATH, or install greenfast in a fresh environment")

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
            if child is not None and not child.alive:       # an interrupt ends the idle ones too
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
        child = Child("search.toolchain.nvrtc_child", Limits(memory_bytes=COMPILE_MEMORY_BYTES))
        with self._lock:
            self._all.add(child)
        return child

    def _forget(self, child: Child) -> None:
        with self._lock:
            self._all.discard(child)

    @staticmethod
    def _refused(source: RenderedSource, log: str) -> CompileFailed:
        if "out of memory" in log:
            return CompileFailed(source.digest, Reason.COMPILE_MEMORY,
                                 f"NVRTC needed more than {COMPILE_MEMORY_BYTES >> 20} MiB", log)
        first = next((line.strip() for line in log.splitlines() if "error" in line), "the compiler gave no message")
        return CompileFailed(source.digest, Reason.COMPILE_ERROR, first[:300], log)

    @staticmethod
    def _crashed(source: RenderedSource, died: ChildDied) -> CompileFailed:
        if died.signal_number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE):
            name = signal.Signals(died.signal_number).name
            return CompileFailed(source.digest, Reason.COMPILE_CRASH, f"NVRTC crashed with {name}", died.tail)
        raise Fault(f"the compiling child was lost (exit {died.returncode}): {died.tail[-300:].strip()}",
                    code="child_lost")


def layout_of(installed: Callable[[str], bool]) -> Layout:
    """The layout whose NVRTC is installed; Fault when none is."""
    for layout in LAYOUTS:
        if installed(layout.wheels[0]):
            return layout
    raise Fault(f"the wheel {COMPONENTS[0]} is not installed, so nothing can be compiled", code="toolchain_missing",
                mend="run `make setup`")


def is_installed(wheel: str) -> bool:
    try:
        return bool(importlib.metadata.version(wheel))
    except importlib.metadata.PackageNotFoundError:
        return False
