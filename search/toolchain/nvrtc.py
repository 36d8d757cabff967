"""Compiling a source with NVRTC: no GPU and no host compiler is needed."""

from __future__ import annotations

import base64
import importlib.metadata
import json
import re
import signal
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from greenfast.search.children import ChildDied, Children, ChildTimeout, Limits
from greenfast.search.cores import usable_memory_bytes
from greenfast.search.cpu_time import Deadline, beside_others, without_others
from greenfast.search.digest import digest, text_digest
from greenfast.search.errors import Fault
from greenfast.search.kernels.template_text import Line
from greenfast.search.render import RenderedSource
from greenfast.search.text import shortened
from greenfast.search.toolchain import known_answer
from greenfast.search.toolchain.cache import ArtifactCache
from greenfast.search.toolchain.host_names import mend_of
from greenfast.search.toolchain.includes import refused_include
from greenfast.search.toolchain.nvrtc_child import OUT_OF_MEMORY, TOO_LARGE
from greenfast.search.toolchain.ptxas import EntryFigures, parse_log
from greenfast.search.toolchain.toolkit import Place, Toolkit, find_toolkit, replacement_advice
from greenfast.search.verdict import Reason

COMPILE_DEADLINE_S = 60.0
# A compile may take this much. Those that run side by side share the machine's memory; one that
# needs more than its share runs again alone. The shipped templates need 0.2 GiB.
COMPILE_MEMORY_BYTES = 8 * 2**30
LEAST_SHARE_BYTES = 2**30
LOG_BYTES = 64 * 1024
VERSION = re.compile(r"Cuda compilation tools, release [\d.]+, V(\d+\.\d+\.\d+)")
# NVRTC's own line, or that of its child; a text may have these words in its own messages.
_OUT_OF_MEMORY = re.compile(
    r"^(?:\S+\(\d+\): catastrophic error: out of memory|1: NVRTC_ERROR_OUT_OF_MEMORY.*"
    rf"|{OUT_OF_MEMORY})$",
    re.MULTILINE,
)
# The machine code of `assert` holds the name of its file and the number of its line.
_POSITIONS = re.compile(r"\bassert\b|__FILE__|__LINE__")
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
    machine_code: str = ""  # the digest of what the GPU executes (machine_code.py)

    @property
    def ptx(self) -> str:
        """The PTX of the same compilation; empty when the compiler gave none."""
        return (
            zlib.decompress(self.ptx_deflated).decode(errors="replace") if self.ptx_deflated else ""
        )


@dataclass(frozen=True)
class CompileFailed:
    """The compiler refused the source, crashed or timed out; `log` is its output."""

    source_digest: str
    reason: Reason
    sentence: str
    log: str


class Toolchain:
    """Compiles sources in a pool of warm children; safe for several threads."""

    def __init__(
        self,
        cache_folder: Path,
        children: int,
        *,
        deadline_s: float = COMPILE_DEADLINE_S,
        place: Place | None = None,
    ) -> None:
        """`deadline_s`: processor time of a compile. `place`: of the toolkit (toolkit.py)."""
        self._place = place
        self._settings = (cache_folder, children, deadline_s, place)
        self._cache = ArtifactCache(cache_folder, "cubin")
        self._deadline = Deadline.of(deadline_s)
        memory_bytes = usable_memory_bytes()
        self._count, self._share_bytes = compile_shares(children, memory_bytes)
        _, self._alone_bytes = compile_shares(1, memory_bytes)
        self._lock = threading.Lock()
        self._started: Children | None = None
        self._check_lock, self._is_checked = threading.Lock(), False

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its settings: each process starts compilers of its own."""
        return _toolchain, self._settings

    @cached_property
    def toolkit(self) -> Toolkit:
        """The library and headers; Fault when they are missing or of different releases."""
        return find_toolkit(self._place)

    @property
    def children(self) -> Children:
        """The compiling children. The toolkit is looked for when the first one is needed."""
        with self._lock:
            if self._started is None:
                self._started = self._new_children(self._count, self._share_bytes)
            return self._started

    def _new_children(self, count: int, memory_bytes: int) -> Children:
        return Children(
            count,
            "greenfast.search.toolchain.nvrtc_child",
            Limits(memory_bytes=memory_bytes, file_bytes=LOG_BYTES),
            (json.dumps(self.toolkit.libraries), json.dumps(self.include_dirs)),
        )

    @cached_property
    def identity(self) -> tuple[tuple[str, str], ...]:
        """Everything but the source that a cubin depends on, as (component, version)."""
        core = ("cuda-core", importlib.metadata.version("cuda-core"))
        return (*self.toolkit.versions, core, ("options", " ".join(OPTIONS)))

    @property
    def include_dirs(self) -> tuple[str, ...]:
        """Folders of CUDA's headers."""
        return self.toolkit.include_dirs

    def require_correct_code(self) -> None:
        """Raise Fault when the compiler does not work or is known to generate wrong code."""
        with self._check_lock:
            if not self._is_checked:
                self._check_known_answer()
                self._is_checked = True

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
                mend=replacement_advice(),
            )
        if wrong := known_answer.wrong_answer(cubin.code):
            raise Fault(
                f"{name} compiles a known kernel to wrong code ({wrong}), so it is not used",
                code="toolchain_wrong",
                mend=replacement_advice(),
            )

    def compile(self, source: RenderedSource, arch: str) -> Cubin | CompileFailed:
        """The cubin of `source` for `arch` (`sm_90`), from the cache if it was compiled before.

        Raises Fault when a child is lost, the cache cannot be written or releases are mixed.
        """
        marked, name = source.marked(), f"{source.digest[:16]}.cu"
        text = text_digest(marked) if _POSITIONS.search(source.text) else source.digest
        key = digest((text, arch, self.identity, "with PTX and machine_code"))
        if (entry := self._cache.get(key)) is not None:
            record, code = entry
            record["entries"] = tuple(EntryFigures(**figures) for figures in record["entries"])
            return Cubin(code=code, ptx_deflated=base64.b64decode(record.pop("ptx")), **record)
        if sentence := refused_include(marked, name):
            return CompileFailed(source.digest, Reason.COMPILE_ERROR, shortened(sentence), sentence)
        request = {"source": marked, "name": name, "arch": arch, "log_bytes": LOG_BYTES}
        answer = self._answered(source, lambda: beside_others(lambda: self.ask(request), "NVRTC"))
        if self._shares_its_memory and _lacks_memory(answer):
            with without_others():
                answer = self._answered(source, lambda: self._ask_alone(request))
        if isinstance(answer, CompileFailed):
            return answer
        cubin = Cubin(
            source.digest,
            arch,
            base64.b64decode(answer["cubin"]),
            answer["log"],
            parse_log(answer["log"]),
            answer["compile_s"],
            base64.b64decode(answer["ptx"]),
            answer["machine_code"],
        )
        self._check_version(cubin.ptx)
        record = asdict(cubin)
        code = record.pop("code")
        del record["ptx_deflated"]
        self._cache.put(key, {**record, "ptx": answer["ptx"]}, code)
        return cubin

    def _answered(
        self, source: RenderedSource, ask: Callable[[], dict[str, Any]]
    ) -> dict[str, Any] | CompileFailed:
        """The compiler's answer with a cubin, or why there is none."""
        try:
            reply = ask()
        except ChildTimeout:
            return CompileFailed(
                source.digest,
                Reason.COMPILE_TIMEOUT,
                f"NVRTC did not finish within {self._deadline.cpu_s:g} s of processor time",
                "",
            )
        except ChildDied as died:
            return self._crashed(source, died)
        return self._refused(source, reply["log"]) if reply["cubin"] is None else reply

    @property
    def _shares_its_memory(self) -> bool:
        return self._share_bytes < self._alone_bytes

    def _ask_alone(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply of a child that has the memory of all others."""
        child = self._new_children(1, self._alone_bytes)
        try:
            return child.call(request, self._deadline)
        finally:
            child.close()

    def _check_version(self, ptx: str) -> None:
        """Fault when the library that ran is of another release than its package."""
        library, package = VERSION.search(ptx[:1000]), dict(self.identity)["nvidia-cuda-nvrtc"]
        if library and library[1] != package:
            raise Fault(
                f"the package nvidia-cuda-nvrtc is {package}, but its library is {library[1]}",
                code="toolchain_mixed",
                mend="pip install --force-reinstall --no-deps nvidia-cuda-nvrtc==" + package,
            )

    def warm(self, count: int) -> None:
        """Start so many compilers, as far as there may be. Raises Fault as `toolkit` does."""
        self.children.warm(count)

    def interrupt(self) -> None:
        """End the compiles in progress; their calls raise Fault."""
        if self._started is not None:
            self._started.kill()

    def close(self) -> None:
        self.interrupt()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """A child's reply to a request. ChildDied, ChildTimeout or Starved without one."""
        return self.children.call(request, self._deadline)

    def _refused(self, source: RenderedSource, log: str) -> CompileFailed:
        if _OUT_OF_MEMORY.search(log):
            return CompileFailed(
                source.digest,
                Reason.COMPILE_MEMORY,
                f"NVRTC needed more than {self._alone_bytes >> 20} MiB",
                log,
            )
        if log.startswith(TOO_LARGE):
            return CompileFailed(source.digest, Reason.COMPILE_MEMORY, log, log)
        # ptxas calls its causes fatal, and ends with a line about errors.
        lines = [line.strip() for line in log.splitlines()]
        first = next(
            (line for line in lines if "error" in line or line.startswith("ptxas fatal")),
            "the compiler gave no message",
        )
        mend = mend_of(first)
        sentence = shortened(first) + (f" ({mend})" if mend else "")
        return CompileFailed(source.digest, Reason.COMPILE_ERROR, sentence, log)

    @staticmethod
    def _crashed(source: RenderedSource, died: ChildDied) -> CompileFailed:
        if died.has_crashed:
            name = signal.Signals(died.signal_number).name
            return CompileFailed(
                source.digest, Reason.COMPILE_CRASH, f"NVRTC crashed with {name}", died.tail
            )
        raise Fault(
            f"the compiling child was lost (exit {died.returncode}): {died.tail[-300:].strip()}",
            code="child_lost",
        )


def compile_shares(children: int, memory_bytes: int) -> tuple[int, int]:
    """How many children may compile side by side, and the memory of each.

    Together they may take `memory_bytes`, unless that is less than LEAST_SHARE_BYTES.
    """
    count = max(1, min(children, memory_bytes // LEAST_SHARE_BYTES))
    return count, min(COMPILE_MEMORY_BYTES, max(LEAST_SHARE_BYTES, memory_bytes // count))


def _lacks_memory(answer: dict[str, Any] | CompileFailed) -> bool:
    return isinstance(answer, CompileFailed) and answer.reason is Reason.COMPILE_MEMORY


def _toolchain(
    cache_folder: Path, children: int, deadline_s: float, place: Place | None
) -> Toolchain:
    return Toolchain(cache_folder, children, deadline_s=deadline_s, place=place)
