"""Variables that are used before they are set.

The compiler gives such a variable a number of its own (`-ftrivial-auto-var-init=pattern`), with
which most results are wrong. But nobody knows the right results of a user's own kernel, and a
maximum hides the number, which is large and negative. So where g++ leaves the number in its
assembly, the library is built a second time with another one, which is large and positive. If a run
then ends with other outputs, they depend on it. A number that g++ also leaves where such variables
are zero is the author's, as in `x & 0xfefefefe`: then there is no second library.

Only whole words are changed. An array that is filled by bytes, and numbers of 16 bits, keep theirs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

WORD, OTHER_WORD = 0xFEFEFEFE, 0x7B7B7B7B
KIND = "unset_variable"
Place = tuple[str, int]  # file and line


_NUMBER = re.compile(r"(?<=[$\t ])-?\d{8,20}\b(?!\()")  # of at least 28 bits


def _changed(number: re.Match[str]) -> str:
    """The number, with the other word in place of each that is WORD."""
    value = int(number[0])
    bits = 32 if -(1 << 31) <= value < 1 << 32 else 64
    words = [(value >> at) & 0xFFFFFFFF for at in range(0, bits, 32)]
    if WORD not in words:
        return number[0]
    words = [OTHER_WORD if word == WORD else word for word in words]
    changed = sum(word << 32 * at for at, word in enumerate(words))
    return str(changed - (1 << bits) if changed >> (bits - 1) else changed)


def _with_other(line: str) -> str:
    return _NUMBER.sub(_changed, line)


_LABEL = re.compile(r"(\.LC\d+):")
_USED = re.compile(r"(\.LC\d+)\(%rip\)")
_FILE = re.compile(r'\t\.file (\d+) "([^"]*)"')
_LOC = re.compile(r"\t\.loc (\d+) (\d+)")


def with_other_number(assembly: Sequence[str]) -> list[str] | None:
    """The lines with the other number; None where no line has one."""
    lines = list(map(_with_other, assembly))
    return lines if lines != list(assembly) else None


def places(assembly: Sequence[str]) -> tuple[Place, ...]:
    """The lines of the text that use the number, in order: those that an instruction belongs to."""
    holders = _holders(assembly)
    files: dict[str, str] = {}
    given: dict[Place, None] = {}
    place: Place | None = None
    for line in assembly:
        if (file := _FILE.match(line)) is not None:
            files[file[1]] = file[2]
        elif (loc := _LOC.match(line)) is not None:
            place = files.get(loc[1], ""), int(loc[2])
        elif place is not None and not line.startswith("\t.") and _gives(line, holders):
            given.setdefault(place)
    return tuple(given)


def _holders(assembly: Sequence[str]) -> frozenset[str]:
    """The labels of constants that hold the number."""
    holders, label = set(), ""
    for line in assembly:
        if (named := _LABEL.match(line)) is not None:
            label = named[1]
        elif not line.startswith("\t."):
            label = ""
        elif label and _with_other(line) != line:
            holders.add(label)
    return frozenset(holders)


def _gives(instruction: str, holders: frozenset[str]) -> bool:
    used = _USED.search(instruction)
    return _with_other(instruction) != instruction or (used is not None and used[1] in holders)
