"""The tasks that a machine of the cluster carries out, and what it keeps between them.

Children compile and run candidates here, as on a single machine, with the same limits, deadlines
and confinement. A machine needs greenfast and its dependencies, and no kernel's files: sources and
headers arrive with the tasks.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from greenfast.search.children import ChildDied, ChildTimeout
from greenfast.search.cpu_time import beside_others
from greenfast.search.digest import text_digest
from greenfast.search.errors import Fault
from greenfast.search.executors.cluster import Differs, replied
from greenfast.search.executors.parcel import Parcel, unpacked
from greenfast.search.render import RenderedSource
from greenfast.search.shipped import own_version
from greenfast.search.targets.emulator.build import Module
from greenfast.search.targets.emulator.runs import Run, RunResult
from greenfast.search.targets.emulator.target import EmulatorTarget, Program
from greenfast.search.toolchain import Toolchain
from greenfast.search.toolchain.cache import write_atomically

PROGRAMS_KEPT = 16
CACHE_VARIABLE = "GREENFAST_NODE_CACHE"  # of a machine: the folder of its artefacts
T = TypeVar("T")
Identity = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class CompileRequest:
    """A request to NVRTC's child. `identity` is of the toolchain that the search expects."""

    identity: Identity
    request: Mapping[str, Any]


@dataclass(frozen=True)
class Compiled:
    """The child's reply, or how it failed."""

    reply: dict[str, Any] | None
    died: tuple[int, str] | None = None  # exit code and the end of stderr
    timed_out: bool = False


@dataclass(frozen=True)
class EmulatorSetup:
    """An emulator of a GPU with the templates' headers.

    They are one JSON text of names and texts, which travels once.
    """

    which: str
    headers: str
    run_deadline_s: float
    version: str  # of greenfast
    identity: Identity = ()  # that the search expects; empty: any


@dataclass(frozen=True)
class Examination:
    setup: EmulatorSetup
    source: RenderedSource


@dataclass(frozen=True)
class Emulation:
    """Runs of one flavour of a source.

    `has_other_number`: of the library with another number in variables that are not set.
    `keeps_paths`: of one whose variables keep it on paths that do not set them. There are no
    results where such a library would be no other than the first.
    """

    setup: EmulatorSetup
    source: RenderedSource
    flavour: str
    runs: tuple[Run, ...]
    patience: float
    has_other_number: bool = False
    keeps_paths: bool = False


def compile_source(parcel: Parcel, *arrays: np.ndarray) -> Parcel:
    """A task: Compiled, or Differs."""
    return replied(lambda: _compiled(_request(parcel, arrays)))


def describe_emulator(parcel: Parcel, *arrays: np.ndarray) -> Parcel:
    """A task: the identity of this machine's emulator."""
    return replied(lambda: _on_emulator(_request(parcel, arrays), lambda target: target.identity()))


def examine(parcel: Parcel, *arrays: np.ndarray) -> Parcel:
    """A task: None for a source that the emulator takes; SourceRefused otherwise."""
    wanted: Examination = _request(parcel, arrays)
    return replied(lambda: _on_emulator(wanted.setup, lambda target: target.examine(wanted.source)))


def emulate(parcel: Parcel, *arrays: np.ndarray) -> Parcel:
    """A task: a RunResult for each run."""
    wanted: Emulation = _request(parcel, arrays)

    def results(target: NodeEmulator) -> tuple[RunResult, ...]:
        return target.results(wanted)

    return replied(lambda: _on_emulator(wanted.setup, results))


def answer_nothing(parcel: Parcel, *arrays: np.ndarray) -> Parcel:
    """A task that does nothing, to measure what a task costs."""
    return replied(lambda: None)


class NodeEmulator(EmulatorTarget):
    """An emulator that answers single steps of another process's EmulatorTarget."""

    def __init__(self, setup: EmulatorSetup) -> None:
        headers = _headers_folder(setup.headers)
        super().__init__(setup.which, cache_folder(), (headers,), 1, setup.run_deadline_s)
        self._programs: OrderedDict[str, Program] = OrderedDict()

    def results(self, wanted: Emulation) -> tuple[RunResult, ...]:
        """Compile the source, unless this machine has it, and run it."""
        source = wanted.source
        program = self._programs.pop(source.digest, None) or Program(source)
        self._programs[source.digest] = program
        if len(self._programs) > PROGRAMS_KEPT:
            self._programs.popitem(last=False)
        module: Module | None = self._module(program, wanted.flavour)
        if module is not None and wanted.keeps_paths:
            module = (
                self._module(program, wanted.flavour, keeps_paths=True)
                if module.folded_places is not None
                else None
            )
        if module is not None and wanted.has_other_number:
            module = module.with_other_number
        return self._execute(module, list(wanted.runs), wanted.patience) if module else ()


def cache_folder() -> Path:
    """This machine's folder of artefacts; several processes share it."""
    named = os.environ.get(CACHE_VARIABLE, "")
    folder = Path(named) if named else _own_folder(Path(tempfile.gettempdir()))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _own_folder(base: Path) -> Path:
    """A folder that only this user can write: a stranger must not plant libraries in it."""
    folder = base / f"greenfast-node-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if folder.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise Fault(
            f"the folder {folder} belongs to another user",
            code="cache_unwritable",
            mend=f"set {CACHE_VARIABLE} to a folder of your own on each machine",
        )
    return folder


def _request(parcel: Parcel, arrays: Sequence[np.ndarray]) -> Any:
    return unpacked(parcel, dict(zip(parcel.digests, arrays, strict=True)))


_emulators: dict[Hashable, NodeEmulator] = {}  # of this process


def _on_emulator(setup: EmulatorSetup, work: Callable[[NodeEmulator], T]) -> T | Differs:
    if (own := own_version()) != setup.version:
        return _differs("greenfast", own, setup.version)
    key = setup.which, text_digest(setup.headers), setup.run_deadline_s
    if key not in _emulators:
        _emulators[key] = NodeEmulator(setup)
    target = _emulators[key]
    own_identity = dict(target.identity())
    for name, expected in setup.identity:
        if own_identity.get(name) != expected:
            return _differs(name, own_identity.get(name, "nothing"), expected)
    return work(target)


@cache
def _toolchain() -> Toolchain:
    """This process's compiler. A task compiles one source at a time."""
    toolchain = Toolchain(cache_folder(), 1)
    toolchain.require_correct_code()
    return toolchain


def _compiled(compiling: CompileRequest) -> Compiled | Differs:
    try:
        own = dict(_toolchain().identity)
        for name, expected in compiling.identity:
            if own.get(name) != expected:
                return _differs(name, own.get(name, "nothing"), expected)
        reply = beside_others(lambda: _toolchain().ask(compiling.request), "NVRTC")
    except ChildTimeout:
        return Compiled(None, timed_out=True)
    except ChildDied as died:
        return Compiled(None, died=(died.returncode, died.tail))
    except Fault:
        raise
    except BaseException:  # cancelled: the child may have half an answer
        _toolchain().close()
        _toolchain.cache_clear()
        raise
    return Compiled(reply)


def _differs(name: str, own: str, expected: str) -> Differs:
    machine = machine_name()
    return Differs(machine, f"the machine {machine} has {name} {own}, and this one {expected}")


_machine: list[str] = []  # the cluster's name of this machine, where it gives one


def be_machine(name: str) -> None:
    """Note the cluster's name of this machine."""
    _machine[:] = [name]


def machine_name() -> str:
    return _machine[0] if _machine else platform.node()


def _headers_folder(headers: str) -> Path:
    """A folder with the headers, written once."""
    folder = cache_folder() / "headers" / text_digest(headers)
    for name, text in json.loads(headers).items():
        path = folder / name
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise Fault(f"{name} is not a valid header name", code="bad_header_name")
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text.encode())
    return folder
