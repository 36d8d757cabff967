"""ScoR's micro-benchmarks: pairs of accesses with scoped atomics, fences and locks.

A file's name begins with `race` or `norace`. Each has one kernel on one word, and macros for its
grid and block.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from bench.correctness.suites.cases import RACE, LaunchCase, Memory, SuiteCase

SOURCES = Path("microbenchmarks/src")
_VOLATILE_PAIR = (
    "The two accesses that nothing orders are a volatile load and a volatile store. PTX makes "
    "volatile accesses relaxed operations of system scope, and two such operations are no data "
    "race (PTX ISA, Memory Consistency Model)."
)
# By file: why CUDA's memory model disagrees with the label.
DIFFERENT = {
    "race_interblock_blkfence_raw": f"{_VOLATILE_PAIR} The fence's scope is too narrow to order "
    "them, so the load may return the old value. The checks do not see that.",
    "race_interblock_fence_rtraw": _VOLATILE_PAIR,
    "race_interblock_none-lock_rtraw": _VOLATILE_PAIR,
}
_KERNEL = re.compile(r"__global__\s+void\s+(\w+)\s*\(([^)]*)\)")
_SIZE = r"^\s*#\s*define\s+{}\s+(\d+)"


def cases(checkout: Path) -> list[SuiteCase]:
    """All files, in order of their names."""
    return [case_of(path) for path in sorted((checkout / SOURCES).glob("*.cu"))]


def case_of(path: Path) -> SuiteCase:
    text = path.read_text("utf-8")
    kernel = _KERNEL.search(text)
    assert kernel is not None, f"{path.name} has no kernel"
    name = re.split(r"\W+", kernel.group(2).strip())[-1]
    grid, block = (_size(text, macro) for macro in ("NBLOCKS", "TPERBLK"))
    # The suite leaves the word as cudaMalloc returns it, and some kernels read it first.
    memory = (Memory(name, "output", np.zeros(1, np.uint32)),)
    launch = LaunchCase("launch", kernel.group(1), grid, block, memory, (name,))
    expected = frozenset() if path.stem.startswith("norace") else frozenset((RACE,))
    return SuiteCase(path.stem, path, expected, (launch,), (), DIFFERENT.get(path.stem, ""))


def _size(text: str, macro: str) -> int:
    match = re.search(_SIZE.format(macro), text, re.MULTILINE)
    assert match is not None, f"#define {macro} is missing"
    return int(match.group(1))
