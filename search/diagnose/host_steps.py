"""What a CUDA program did, as steps of a check: writes and copies of the host, and launches."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

MOST_THREADS = 2**17  # of a launch that runs as a whole
LARGE = (
    f"launches with more than {MOST_THREADS:,} threads, but for their first and last block; "
    "what they write is not used any further"
)
UNNAMED = "launches of templates with a lambda, or with a type that is local to a function"
ADDRESSES = (
    "launches with memory that holds addresses of other memory, such as an array of pointers"
)
POINTER_BYTES = 8
_LOCAL_TYPE = re.compile(r"<lambda|\)(?: const)?::")


@dataclass(frozen=True)
class Write:
    """What the host wrote into an allocation between two launches.

    `file` has the whole allocation, and `parts` are the first and the end of each range of bytes
    that was written, in order and apart.
    """

    number: int
    parts: tuple[tuple[int, int], ...]
    file: Path


@dataclass(frozen=True)
class Copy:
    """Bytes copied from one allocation to another."""

    number: int
    offset: int
    source: int
    source_offset: int
    bytes: int


@dataclass(frozen=True)
class RecordedLaunch:
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    smem_dynamic_bytes: int
    arguments: tuple[Mapping[str, Any], ...]  # as in the record
    behind: frozenset[int] = frozenset()  # allocations whose addresses are in those it gets

    @property
    def used(self) -> set[int]:
        """The numbers of the allocations that it gets."""
        return {number for argument in self.arguments for number in numbers_of(argument)}

    @property
    def written(self) -> set[int]:
        """Of those that it may write: it has a pointer to what is not `const`."""
        return set(self.behind) | {
            number
            for argument in self.arguments
            if "pointer" not in argument or not re.search(r"\bconst\b", argument["type"])
            for number in numbers_of(argument)
        }

    @property
    def is_large(self) -> bool:
        return math.prod(self.grid) * math.prod(self.block) > MOST_THREADS

    @property
    def left_out(self) -> str:
        """Why it does not run, as a limit of the report; empty: it runs.

        No text outside of a function can name a kernel one of whose types is local. Addresses in
        memory are those of the program's process.
        """
        if _LOCAL_TYPE.search(self.entry):
            return UNNAMED
        return ADDRESSES if self.behind else ""

    @property
    def is_alone(self) -> bool:
        """Whether a run has this launch only, because its results are not used."""
        return self.is_large or bool(self.left_out)


@dataclass(frozen=True)
class LaunchRun:
    """Launches in a row, and the initial values of device variables."""

    launches: tuple[RecordedLaunch, ...]
    data: Mapping[str, str]

    @property
    def is_large(self) -> bool:
        return self.launches[0].is_large

    @property
    def left_out(self) -> str:
        return self.launches[0].left_out

    @property
    def kind(self) -> tuple[RecordedLaunch, ...]:
        """Equal for runs in a loop."""
        return tuple(replace(launch, arguments=()) for launch in self.launches)

    @property
    def used(self) -> set[int]:
        return {number for launch in self.launches for number in launch.used}

    @property
    def written(self) -> set[int]:
        return {number for launch in self.launches for number in launch.written}


@dataclass(frozen=True)
class Allocation:
    bytes: int
    name: str  # of the first parameter that gets it
    dtype: np.dtype


Step = Write | Copy | LaunchRun


@dataclass(frozen=True)
class Recorded:
    """What a program did, and what of it cannot be checked."""

    steps: tuple[Step, ...]
    allocations: Mapping[int, Allocation]
    limits: tuple[str, ...]


def numbers_of(argument: Mapping[str, Any]) -> list[int]:
    own = [argument["pointer"]] if "pointer" in argument else []
    return own + [each["pointer"] for each in argument.get("pointers", ())]
