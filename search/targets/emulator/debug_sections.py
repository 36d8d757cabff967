"""Debug sections at the end of g++'s assembly: 7,200 of the 7,900 lines of a small kernel.

They describe where the prelude's functions were inlined. The edits of a checked library concern
its code and objects, so these lines are left out of them, and written as they are.
"""

from __future__ import annotations

_BEGIN = '\t.section\t.debug_info,"",@progbits\n'
# All that g++ writes there. Another line may be code, which no edit may miss.
_DATA = (
    "\t.byte\t",
    "\t.uleb128 ",
    "\t.long\t",
    "\t.string\t",
    ".L",
    "\t.value\t",
    "\t.quad\t",
    "\t.ascii\t",
    "\t.sleb128 ",
    "\t.section\t.debug_",
    '\t.section\t.note.GNU-stack,"",@progbits\n',
    "\t.ident\t",
)


def split_debug(assembly: list[str]) -> tuple[list[str], list[str]]:
    """The lines before the debug sections, and those of the sections.

    The line that begins the sections is in both parts: an edit sees where the last object ends,
    and may add sections of its own. Everything is in the first part where the sections hold
    anything but data.
    """
    begin = next((at for at in range(len(assembly) - 1, -1, -1) if assembly[at] == _BEGIN), None)
    if begin is None or not all(line.startswith(_DATA) for line in assembly[begin:]):
        return assembly, []
    return assembly[: begin + 1], assembly[begin:]
