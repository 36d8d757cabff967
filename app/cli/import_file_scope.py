"""What a CUDA text holds at file scope or in a namespace: functions, types, declarations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from greenfast.app.cli.import_source import end_of_block

_DIRECTIVE = re.compile(r"(?m)^[ \t]*#(?:[^\\\n]|\\\n|\\.)*$")
_LITERAL = re.compile(r'(?<!extern )"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'')
_OPEN = re.compile(
    r'(?:\bnamespace\b[\w:\s]*|\bextern\s*"C"\s*)\Z'
)  # what is in it is at file scope


@dataclass(frozen=True)
class Statement:
    """A definition with its block, or what ends at a semicolon."""

    header: str  # the text before the block or the semicolon
    begin: int  # of the header
    body: int  # after the opening brace; `end` where there is none
    end: int


def without_directives(bare: str) -> str:
    """The text with blanks in place of directives and literals."""
    return _DIRECTIVE.sub(blank, _LITERAL.sub(blank, bare))


def statements(text: str) -> Iterator[Statement]:
    """Those of a text without comments and directives, in their order."""
    begin = at = 0
    while (brace := re.compile(r"[{};]").search(text, at)) is not None:
        header, at = text[begin : brace.start()], brace.end()
        if brace[0] == "{" and not _OPEN.search(header):
            body = at
            at = end_of_block(text, at) + 1
            yield Statement(header, begin, body, at)
        elif brace[0] == ";":
            yield Statement(header, begin, at, at)
        begin = at


def blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])
