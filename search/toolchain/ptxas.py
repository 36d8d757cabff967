"""The assembler's figures, read from its verbose log.

They are found by phrases, because line prefixes differ between NVRTC and nvcc.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SMEM = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class EntryFigures:
    """Figures of an entry function.

    The log does not tell dynamic shared memory, which the template's toml computes.
    """

    entry: str
    registers: int
    stack_bytes: int
    spill_bytes: int
    smem_static_bytes: int


def parse_log(log: str) -> tuple[EntryFigures, ...]:
    """The figures of each entry, in the order of the log."""
    figures: list[EntryFigures] = []
    entry, stack, spill = None, 0, 0
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry, stack, spill = match.group(1), 0, 0
        elif entry and (match := _SPILL.search(line)):
            stack, spill = int(match.group(1)), int(match.group(2)) + int(match.group(3))
        elif entry and (match := _USED.search(line)):
            smem = _SMEM.search(line)
            figures.append(
                EntryFigures(
                    entry, int(match.group(1)), stack, spill, int(smem.group(1)) if smem else 0
                )
            )
            entry = None
    return tuple(figures)
