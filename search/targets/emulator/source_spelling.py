"""Spellings that NVRTC's preprocessor and the host's read differently.

The checks run the text as the host's preprocessor leaves it, so that a place which only one of the
two takes for a comment would be code that nobody has checked. Compared with NVRTC 13.0 and g++ 12:

    // a comment \\      with a space behind the backslash: goes on for g++, ends for NVRTC
    a carriage return   alone: a line's end for g++, none for NVRTC
    NUL                 the end of the text for NVRTC; so may 0x1a be for some reader
    __LINE__            in a macro's call over several lines: where it stands, or the call's end
    __TIME__, __DATE__  of each preprocessing
    '\\e'                is an escape for g++, an `e` for NVRTC
"""

from __future__ import annotations

import re

from greenfast.search.targets.emulator.source_rewriting import Refused
from greenfast.search.targets.emulator.source_tokens import Place

_SPELLING = re.compile(r"\\[ \t\v\f]+(?=\r?\n)|\r(?!\n)|[\0\x1a]")
_LINE = re.compile(r'#line (\d+) "([^"]*)"')


def refused_spelling(text: str, file: str) -> Refused | None:
    """The first such spelling of a text with `#line` markers; `file` is its name before any."""
    match = _SPELLING.search(text)
    if match is None:
        return None
    number = 0
    for line in re.split(r"\n", text[: match.start() + 1]):
        marker = _LINE.match(line)
        number, file = (int(marker[1]) - 1, marker[2]) if marker else (number + 1, file)
    return Refused(Place(file, number), _reason(match[0]))


def _reason(spelling: str) -> str:
    if spelling[0] == "\\":
        return "a backslash with a space behind it at the line's end; NVRTC does not continue it"
    if spelling == "\r":
        return "a carriage return alone, which NVRTC takes for no end of a line"
    return f"the control character {ord(spelling):#04x}"
