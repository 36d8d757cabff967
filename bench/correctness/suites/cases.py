"""A file of a suite with its label, and the launches under which it is checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from greenfast.search.diagnose.brought_buffers import DTYPE_NAMES

RACE, BOUNDS = "race", "out_of_bounds"  # kinds of findings, as the emulator names them


@dataclass(frozen=True, eq=False)
class Memory:
    """An argument's buffer with its contents before the launch."""

    name: str
    role: str  # "input" | "output" | "workspace"
    contents: np.ndarray


@dataclass(frozen=True, eq=False)
class LaunchCase:
    """One launch of a file's kernel; `arguments` are buffers' names and int32 values."""

    name: str
    entry: str
    grid: int
    block: int
    memory: tuple[Memory, ...]
    arguments: tuple[str | int, ...]

    def write(self, folder: Path) -> Path:
        """Write the launch file and its arrays into `folder`; the launch file's path."""
        for memory in self.memory:
            np.save(folder / f"{self.name}_{memory.name}.npy", memory.contents)
        path = folder / f"{self.name}.toml"
        path.write_text("\n".join(self._lines()) + "\n", "utf-8")
        return path

    def _lines(self) -> Iterator[str]:
        for memory in self.memory:
            yield "[[buffers]]"
            yield f'name = "{memory.name}"'
            yield f'role = "{memory.role}"'
            yield f'dtype = "{DTYPE_NAMES[memory.contents.dtype]}"'
            yield f"elements = {memory.contents.size}"
            yield f'file = "{self.name}_{memory.name}.npy"'
        yield "[[launches]]"
        yield f'entry = "{self.entry}"'
        yield f"grid = {self.grid}"
        yield f"block = {self.block}"
        arguments = (
            f'"{argument}"' if isinstance(argument, str) else f"{{ int32 = {argument} }}"
            for argument in self.arguments
        )
        yield f"arguments = [{', '.join(arguments)}]"


@dataclass(frozen=True, eq=False)
class SuiteCase:
    """`expected` holds the kinds of findings that the label promises; empty: the file is clean."""

    name: str
    path: Path
    expected: frozenset[str]
    launches: tuple[LaunchCase, ...]
    include_dirs: tuple[Path, ...] = ()
    reason_to_differ: str = ""  # why CUDA's memory model does not agree with the label
