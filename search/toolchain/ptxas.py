"""The assembler's figures, read from its verbose log.

They are found by phrases, because line prefixes differ between NVRTC and nvcc.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace

from greenfast.search.verdict import AssemblerNote

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SMEM = re.compile(r"(\d+) bytes smem")
_REMARK = re.compile(r"\((C75\d\d)\) (?:Potential Performance Loss: )?(.*)")
_PLACE = re.compile(r" (?:in|around)(?: around)? line \d+")  # of the PTX, not of the author's text
_FUNCTION = re.compile(r"(?:in )?(?:the )?function '([^']+)'")
# Names of the remarks by words of their text, since each of them has several codes.
_NAMES = (
    ("are serialized", "wgmma_serialised"),
    ("wait_group is injected", "wgmma_wait_injected"),
    ("arrive is injected", "wgmma_arrive_injected"),
    ("setmaxnreg", "setmaxnreg_ignored"),
)


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


def parse_notes(log: str) -> tuple[AssemblerNote, ...]:
    """The remarks on products and register budgets, each once for a function, with a count."""
    counts: Counter[AssemblerNote] = Counter()
    for line in log.splitlines():
        if (remark := _REMARK.search(line)) is None:
            continue
        code, text = remark[1], _PLACE.sub("", remark[2]).strip().rstrip(".")
        name = next((name for words, name in _NAMES if words in text), "other")
        function = _FUNCTION.search(text)
        counts[AssemblerNote(name, code, function[1] if function else "", text)] += 1
    return tuple(replace(note, count=count) for note, count in counts.items())
