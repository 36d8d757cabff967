"""Gaps between a kernel library's objects, so that a pointer past one never lies in the next.

The compiler lays `__device__` and `__constant__` objects out next to each other. This edits g++'s
assembly: each named object gets bytes that belong to nobody on both sides, as
native/module_memory.h expects. Thread-local objects are shared memory and keep their places.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

GAP_BYTES = 64
_COMMON = re.compile(r"\t\.comm\t([^.,\s][^,\s]*),(\d+),(\d+)")
_OBJECT = re.compile(r"\t\.type\t([^.,\s][^,\s]*), @object")
_ALIGN = re.compile(r"\t\.align (\d+)")
_SECTION = re.compile(r"\t\.(?:section\t([^,\s]+)|text|data|bss)")
_DATA = re.compile(
    r"\t\.(?:zero|long|quad|value|byte|2byte|4byte|8byte|octa|string|ascii|base64|float|double|loc)\b"
)


def with_gaps(assembly: Iterable[str]) -> Iterator[str]:
    """The lines of `assembly` with a gap before and behind each object that has a name."""
    thread_local, alignment, label, inside = False, 1, "", False
    for line in assembly:
        if not inside and line.startswith("\t") and not line.startswith("\t."):
            yield line  # an instruction, as most lines are
            continue
        if inside and not _DATA.match(line):
            yield f"\t.zero\t{GAP_BYTES}\n"
            inside = False
        if (section := _SECTION.match(line)) is not None:
            thread_local = (section[1] or "").startswith((".tbss", ".tdata"))
        elif (align := _ALIGN.match(line)) is not None:
            alignment = int(align[1])
        elif (common := _COMMON.match(line)) is not None:
            name, size = common[1], int(common[2])
            # The assembler places it where it meets this, and takes the size from the last word.
            yield f"\t.comm\t{name},{size + GAP_BYTES},{common[3]}\n\t.size\t{name}, {size}\n"
            continue
        elif (named := _OBJECT.match(line)) is not None and not thread_local:
            label = f"{named[1]}:\n"
        elif line == label:
            yield f"\t.zero\t{max(GAP_BYTES, alignment)}\n"
            label, inside = "", True
        yield line
