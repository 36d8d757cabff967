"""Loaded kernels that notice changes of their files, by sizes and modification times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from greenfast.search.kernels.reference_text import module_places
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.template_text import places_of
from greenfast.search.shipped import KERNEL_TEMPLATES

LOOK_S = 1.0  # the files of a loaded kernel are examined at most once in this time
SUFFIXES = (".toml", ".py", ".j2")
State = tuple[tuple[str, int, int], ...]  # (path, size, modification time) of each file


@dataclass
class LoadedKernel:
    """A kernel and the state of the files that it was read from."""

    kernel: KernelSpec
    folder: Path
    own_files: State
    references: State  # of other kernels: references and parts that its own build on
    looked_s: float = field(default_factory=time.monotonic)

    @classmethod
    def read(cls, folder: Path, load: Callable[[Path], KernelSpec]) -> LoadedKernel:
        """Load the kernel in `folder`. A file that changes meanwhile makes it out of date."""
        own_files = _state(_files(folder))
        kernel = load(folder)
        return cls(kernel, folder, own_files, _state(_references(kernel, folder)))

    def was_examined(self) -> bool:
        """Whether its files were examined less than LOOK_S ago."""
        return time.monotonic() - self.looked_s < LOOK_S

    def is_current(self, folder: Path) -> bool:
        """Whether `folder` still holds the files that were read."""
        self.looked_s = time.monotonic()
        return (
            folder == self.folder
            and self.own_files == _state(_files(folder))
            and self.references == _state(_references(self.kernel, folder))
        )


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix in SUFFIXES)


def _references(kernel: KernelSpec, folder: Path) -> Iterator[Path]:
    for name, _ in kernel.reference_uses:
        module, colon, _ = name.partition(":")
        if colon:
            yield from module_places(module, folder)
            continue
        for root in (folder.parent, KERNEL_TEMPLATES):
            yield root / name / "reference.py"
    for template in kernel.templates:
        for shown in template.files:
            if shown.partition("/")[0] != folder.name:
                yield from places_of(folder, shown)


def _state(paths: Iterable[Path]) -> State:
    states = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue  # a missing file changes the state by its absence
        states.append((str(path), status.st_size, status.st_mtime_ns))
    return tuple(sorted(states))
