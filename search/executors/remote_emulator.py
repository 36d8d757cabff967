"""`emulator:GPU` on the machines of a cluster.

Cases, references, findings and modelled times are computed in the searching process. Texts are
preprocessed, compiled and run elsewhere.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from greenfast.search.executors.cluster import Work
from greenfast.search.executors.node import (
    Emulation,
    EmulatorSetup,
    Examination,
    describe_emulator,
    emulate,
    examine,
)
from greenfast.search.render import RenderedSource
from greenfast.search.shipped import own_version
from greenfast.search.targets.base import SourceRefused
from greenfast.search.targets.emulator.build import Module
from greenfast.search.targets.emulator.runs import Run, RunResult
from greenfast.search.targets.emulator.target import EmulatorTarget, Program
from greenfast.search.targets.emulator.unset_variables import Place

EXAMINED_KEPT = 4096  # answers, by a source's digest


@dataclass(frozen=True, kw_only=True)
class RemoteModule(Module):
    """A library that each machine builds when it first runs it."""

    source: RenderedSource
    has_other_number: bool = False
    keeps_paths: bool = False

    @property
    def with_other_number(self) -> Module | None:
        """Whether there is one is known where it is built."""
        return replace(self, has_other_number=True)

    @property
    def folded_places(self) -> tuple[Place, ...] | None:
        """Whether there are any is known where it is built."""
        return ()

    @property
    def unset_places(self) -> tuple[Place, ...]:
        """They stay where the library is."""
        return ()


class RemoteEmulator(EmulatorTarget):
    """Executes candidates on other machines' processors."""

    def __init__(
        self,
        work: Work,
        which: str,
        cache_folder: Path,
        include_dirs: tuple[Path, ...],
        run_deadline_s: float,
    ) -> None:
        super().__init__(which, cache_folder, include_dirs, 1, run_deadline_s)
        self._work = work
        self._setup = EmulatorSetup(
            which, json.dumps(headers_of(include_dirs)), run_deadline_s, own_version()
        )
        self._setup_lock = threading.Lock()
        self._examined: dict[str, str | None] = {}  # digest -> why it is refused

    @property
    def remarks(self) -> tuple[str, ...]:
        return tuple(self._work.remarks)

    def prepare(self) -> None:
        self._described()

    def _described(self) -> EmulatorSetup:
        """The setup, with the identity of the machine that answered first.

        The others must be like it.
        """
        with self._setup_lock:
            if not self._setup.identity:
                identity = self._work.run(describe_emulator, self._setup)
                self._setup = replace(self._setup, identity=identity)
            return self._setup

    def identity(self) -> tuple[tuple[str, str], ...]:
        return self._described().identity

    def examine(self, source: RenderedSource) -> None:
        if source.digest not in self._examined:
            request = Examination(self._described(), source)
            refused: str | None = None
            try:
                self._work.run(examine, request, near=source.digest)
            except SourceRefused as error:
                refused = error.message
            if len(self._examined) >= EXAMINED_KEPT:
                self._examined.clear()
            self._examined[source.digest] = refused
        if (sentence := self._examined[source.digest]) is not None:
            raise SourceRefused(sentence)

    def interrupt(self) -> None:
        self._work.cluster.interrupt()
        super().interrupt()

    def _module(self, program: Program, flavour: str, *, keeps_paths: bool = False) -> Module:
        source = program.source
        return RemoteModule(
            Path(),
            source.digest,
            source.entries,
            flavour,
            0.0,
            source=source,
            keeps_paths=keeps_paths,
        )

    def _execute(
        self,
        module: Module,
        runs: list[Run],
        patience: float = 1.0,
        workers: int | None = None,
    ) -> tuple[RunResult, ...]:
        """On a node, whose emulators have one worker each, whatever `workers` is."""
        if not runs:
            return ()
        assert isinstance(module, RemoteModule)
        request = Emulation(
            self._described(),
            module.source,
            module.flavour,
            tuple(runs),
            patience,
            module.has_other_number,
            module.keeps_paths,
        )
        results: tuple[RunResult, ...] = self._work.run(emulate, request, near=module.source.digest)
        return results


def headers_of(include_dirs: Iterable[Path]) -> dict[str, str]:
    """The texts of the templates' headers by name; of equal names the first folder's."""
    headers: dict[str, str] = {}
    for folder in include_dirs:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            headers.setdefault(path.relative_to(folder).as_posix(), path.read_text("utf-8"))
    return dict(sorted(headers.items()))
