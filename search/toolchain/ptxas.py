"""The assembler's figures, read from its verbose log by phrases (line prefixes differ between NVRTC and nvcc)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SMEM = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class EntryFigures:
    """One entry function. Dynamic shared memory is not in the log: the template's toml computes it."""

    entry: str
    registers: int
    stack_bytes: int
    spill_bytes: int
    smem_static_bytes: int


def parse_log(log: str) -> tuple[EntryFigures, ...]:
    """The figures of each entry, in the log's order; empty when the log holds none."""
    found: list[EntryFigures] = []
    entry, stack, spill = None, 0, 0
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry, stack, spill = match.group(1), 0, 0
        elif entry and (match := _SPILL.search(line)):
            stack, spill = int(match.group(1)), int(match.group(2)) + int(match.group(3))
        elif entry and (match := _USED.search(line)):
            smem = _SMEM.search(line)
            found.append(
                EntryFigures(
                    entry, int(match.group(1)), stack, spill, int(smem.group(1)) if smem else 0
                )
            )
            entry = None
    return tuple(found)
