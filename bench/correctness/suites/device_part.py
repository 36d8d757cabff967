"""The device part of a CUDA file: its lines with all host code blanked out.

Lines keep their numbers, so findings name lines of the file itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_SKIPPED = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | ^\s*\#(?:\\\n|[^\n])*""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_DEVICE = re.compile(r"\b(?:__global__|__device__|__constant__|typedef|using|enum|struct)\b")
_INCLUDE = re.compile(r"^\s*#\s*include\b[^\n]*", re.MULTILINE)


def device_part(text: str) -> str:
    """The text without host functions, host variables, and #include lines."""
    kept = list(text)
    for begin, end in _items(text):
        if not _DEVICE.search(_code(text[begin:end])):
            kept[begin:end] = _blank(text[begin:end])
    return _INCLUDE.sub("", "".join(kept))


def _code(text: str) -> str:
    """The text with comments, strings and preprocessor lines as blanks."""
    return _SKIPPED.sub(lambda match: "".join(_blank(match.group())), text)


def _blank(text: str) -> list[str]:
    return [character if character == "\n" else " " for character in text]


def _items(text: str) -> Iterator[tuple[int, int]]:
    """The parts of the file's outermost level: each ends at a `;` or at a body's brace."""
    code = _code(text)
    depth = begin = 0
    for at, character in enumerate(code):
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
        closes = character == "}" and not code[at + 1 :].lstrip().startswith(";")
        if depth == 0 and (character == ";" or closes):
            yield begin + len(code[begin:at]) - len(code[begin:at].lstrip()), at + 1
            begin = at + 1
