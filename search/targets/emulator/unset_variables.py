"""Variables that are used before they are set.

The compiler gives such a variable a number of its own (`-ftrivial-auto-var-init=pattern`), with
which most results are wrong. But nobody knows the right results of a user's own kernel, and a
maximum hides the number, which is large and negative. So where g++ leaves the number in its
assembly, the library is built a second time with another one, which is large and positive. If a run
then ends with other outputs, they depend on it. A number that g++ also leaves where such variables
are zero is the author's, as in `x & 0xfefefefe`: then there is no second library.

Whole words are changed, numbers of 16 bits, and vectors of equal bytes, with which g++ fills arrays
of 16 bytes and more. Single numbers of 8 bits keep theirs, and those of 16 bits do where the author
has the same one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

WORD, OTHER_WORD = 0xFEFEFEFE, 0x7B7B7B7B
KIND = "unset_variable"
Place = tuple[str, int]  # file and line


# Of at least 28 bits. A float that is stored to memory is written in hexadecimal.
_NUMBER = re.compile(r"(?<=[$\t ])(?:-?\d{8,20}|0x[0-9a-f]{8,16})\b(?!\()")


def _changed(number: re.Match[str]) -> str:
    """The number, with the other word in place of each that is WORD."""
    value = int(number[0], 16 if number[0].startswith("0x") else 10)
    bits = 32 if -(1 << 31) <= value < 1 << 32 else 64
    words = [(value >> at) & 0xFFFFFFFF for at in range(0, bits, 32)]
    if WORD not in words:
        return number[0]
    words = [OTHER_WORD if word == WORD else word for word in words]
    changed = sum(word << 32 * at for at, word in enumerate(words))
    return str(changed - (1 << bits) if changed >> (bits - 1) else changed)


_HALF = re.compile(r"(?<=^\tmov[wl]\t\$)(?:-258|65278)(?=, )|(?<=^\t\.value\t)(?:-258|65278)$")


def _with_other(line: str, halves: bool) -> str:
    line = _NUMBER.sub(_changed, line)
    return _HALF.sub(str(OTHER_WORD & 0xFFFF), line) if halves else line


# A vector of equal bytes: `movl $-2, %eax`, `vmovd %eax, %xmm0`, `vpbroadcastb %xmm0, %xmm0`.
_BYTE = re.compile(r"\tmovl\t\$-2, (%\w+)$")
_MOVED = re.compile(r"\tv?movd\t(%\w+), (%\w+)$")
_SPREAD = re.compile(r"\tvpbroadcastb\t(%xmm\d+), (%\w+)$")
_WRITES = re.compile(r"\t[a-z]\S*\t(?:.*, )?(%\w+)$")
_LEAST_VECTOR = 16  # bytes
_BYTE_LABEL = ".Lgf_emulator_unset"
_OTHER_BYTE = f"\t.section\t.rodata\n{_BYTE_LABEL}:\n\t.byte\t{OTHER_WORD & 0xFF}\n"


def _of_other_bytes(assembly: Iterable[str]) -> Iterator[str]:
    """The lines, in which vectors of the number's bytes become vectors of the other byte."""
    holders: set[str] = set()  # registers that hold the byte
    for line in assembly:
        if not holders and "\tmovl\t$-2," not in line:
            yield line  # as most lines are
            continue
        text = line.rstrip("\n")
        if (spread := _SPREAD.match(text)) is not None and spread[1] in holders:
            holders.discard(_register(spread[2]))
            yield f"\tvpbroadcastb\t{_BYTE_LABEL}(%rip), {spread[2]}\n"
            continue
        if (moved := _MOVED.match(text)) is not None and moved[1] in holders:
            holders.add(moved[2])  # an xmm register
        elif (byte := _BYTE.match(text)) is not None:
            holders.add(byte[1])
        elif text == "\t.cfi_startproc":
            holders.clear()
        elif (written := _WRITES.match(text)) is not None:
            holders.discard(_register(written[1]))
        yield line


def _register(name: str) -> str:
    """The register's name as _BYTE and _MOVED have it: %eax of %rax, %xmm0 of %ymm0."""
    return re.sub(r"^%r(?=[a-z]{2}$)", "%e", name).replace("%ymm", "%xmm")


_LABEL = re.compile(r"(\.LC\d+):")
_USED = re.compile(r"(\.LC\d+)\(%rip\)")
_FILE = re.compile(r'\t\.file (\d+) "([^"]*)"')
_LOC = re.compile(r"\t\.loc (\d+) (\d+)")


@dataclass(frozen=True)
class Unset:
    """What a text's assembly has of the number."""

    other: tuple[str, ...]  # the assembly with the other number
    places: tuple[Place, ...]  # of the text, in order, to which instructions with it belong


def unset_variables(assembly: Sequence[str], zeroed: Callable[[], Sequence[str]]) -> Unset | None:
    """None where variables that are not set have no number.

    `zeroed` makes the assembly in which they are zero: what it has of the number is the author's.
    It makes no lines if it fails.
    """
    with_halves = _changed_lines(assembly, True)
    if with_halves == list(assembly) or not (of_zeros := list(zeroed())):
        return None
    for halves in (True, False):
        if _changed_lines(of_zeros, halves) == of_zeros:
            changed = with_halves if halves else _changed_lines(assembly, halves)
            if changed == list(assembly):
                return None
            return Unset((*changed, _OTHER_BYTE), _places(assembly, changed))
    return None


def _changed_lines(assembly: Sequence[str], halves: bool) -> list[str]:
    lines = [_with_other(line, halves) for line in _of_other_bytes(assembly)]
    index = 0
    for byte, equal in groupby(assembly):  # constants of vectors
        end = index + sum(1 for _ in equal)
        if byte == "\t.byte\t-2\n" and end - index >= _LEAST_VECTOR:
            lines[index:end] = [f"\t.byte\t{OTHER_WORD & 0xFF}\n"] * (end - index)
        index = end
    return lines


def _places(assembly: Sequence[str], changed: Sequence[str]) -> tuple[Place, ...]:
    holders = _holders(assembly, changed)
    files: dict[str, str] = {}
    given: dict[Place, None] = {}
    place: Place | None = None
    for line, other in zip(assembly, changed, strict=True):
        if (file := _FILE.match(line)) is not None:
            files[file[1]] = file[2]
        elif (loc := _LOC.match(line)) is not None:
            place = files.get(loc[1], ""), int(loc[2])
        elif place is not None and not line.startswith("\t."):
            used = _USED.search(line)
            if line != other or (used is not None and used[1] in holders):
                given.setdefault(place)
    return tuple(given)


def _holders(assembly: Sequence[str], changed: Sequence[str]) -> frozenset[str]:
    """The labels of constants that hold the number."""
    holders, label = set(), ""
    for line, other in zip(assembly, changed, strict=True):
        if (named := _LABEL.match(line)) is not None:
            label = named[1]
        elif not line.startswith("\t."):
            label = ""
        elif label and line != other:
            holders.add(label)
    return frozenset(holders)
