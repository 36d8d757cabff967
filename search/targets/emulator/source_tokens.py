"""C++ tokens of a text, with the file and line of each; strings and comments hide nothing.

Sources: the phases of translation in the C++17 standard ([lex.phases], [lex.pptoken]), and the
line markers of `g++ -E` (GCC, The C Preprocessor, "Preprocessor Output").
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from greenfast.search.rendering.logical_lines import logical_lines
from greenfast.search.toolchain.includes import DIRECTIVE

_NAME = r"(?:[A-Za-z_$]|[^\x00-\x7f])(?:[\w$]|[^\x00-\x7f])*"
_PREPROCESSED = re.compile(
    r"""
    (?P<marker>^\#(?:line)?\ [0-9]+\ "(?:[^"\\\n]|\\.)*"[\ 0-9]*$)
  | (?P<pragma>^\#pragma\b[^\n]*$)
  | (?P<space>[ \t\v\f\r\n]+)
  | (?P<string>(?:u8|[uUL])?(?:
        R"(?P<delimiter>[^()\\\s]{0,16})\((?s:.*?)\)(?P=delimiter)" | "(?:[^"\\\n]|\\.)*")
        (?:"""
    + _NAME
    + r""")?)
  | (?P<character>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+'(?:"""
    + _NAME
    + r""")?)
  | (?P<open>(?:u8|[uUL])?R"(?s:.*)|["'][^\n]*)
  | (?P<number>\.?[0-9](?:[eEpP][+-]|'\w|[\w.$]|[^\x00-\x7f])*)
  | (?P<name>"""
    + _NAME
    + r""")
  | (?P<punctuator><:(?!:(?![:>]))|:>|<%|%>|%:%:|%:|::|&&|->|.)
    """,
    re.MULTILINE | re.VERBOSE,
)
_DIGRAPHS = {"<:": "[", ":>": "]", "<%": "{", "%>": "}"}
FARTHEST = 1024  # tokens
DEEPEST = 256  # brackets in brackets; compilers have such a limit, too
_OPENING = ("(", "[", "{")
_MARKER = re.compile(r'#(?:line)? ([0-9]+) ("(?:[^"\\\n]|\\.)*")')


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # marker | pragma | string | character | open | number | name | punctuator
    text: str  # a digraph is spelled as what it stands for
    start: int  # in the text
    end: int


@dataclass(frozen=True)
class Place:
    """The line of an author's file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class PreprocessedText:
    """A preprocessor's output: tokens, line markers and pragmas, and no other directives."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tuple(
            Token(
                kind,
                _DIGRAPHS.get(match[0], match[0]) if kind == "punctuator" else match[0],
                match.start(),
                match.end(),
            )
            for match in _PREPROCESSED.finditer(text)
            if (kind := match.lastgroup or "punctuator") != "space"
        )
        self._markers = tuple(token for token in self.tokens if token.kind == "marker")
        self._starts = tuple(marker.start for marker in self._markers)

    def place_of_name(self, name: str) -> Place:
        """The first place of the name; the text's first line if it does not occur."""
        uses = (token.start for token in self.tokens if token.text == name)
        return self.place(next(uses, 0))

    def marker_within(self, start: int, end: int) -> Token | None:
        """The last line marker between two positions."""
        index = bisect_right(self._starts, end) - 1
        return self._markers[index] if index >= 0 and self._starts[index] > start else None

    def place(self, position: int) -> Place:
        index = bisect_right(self._starts, position) - 1
        if index < 0:
            return Place("kernel.cu", self.text.count("\n", 0, position) + 1)
        marker = self._markers[index]
        number, name = marker_of(marker.text)
        lines = self.text.count("\n", marker.end, position)
        return Place(name[1:-1], max(1, number + lines - 1))


def marker_of(text: str) -> tuple[int, str]:
    """The line number and the quoted file name of a line marker."""
    match = _MARKER.match(text)
    assert match is not None
    return int(match[1]), match[2]


def marker_edit(token: Token) -> tuple[int, int, str]:
    """Where a line marker begins and ends, and the directive of that meaning."""
    number, name = marker_of(token.text)
    own = number > 0 and not name.startswith('"<')
    return token.start, token.end, f"#line {number} {name}" if own else ""


def line_directive(text: str) -> tuple[int, str] | None:
    """The first line of an author's text that claims another file or line for itself, and why.

    `text` holds no line markers of ours. A text that cannot be read with certainty (an open quote
    before a comment, a raw string over a continued line) is such a line as well.
    """
    for line in logical_lines(text):
        if line.fault:
            return line.number, line.fault
        directive = DIRECTIVE.match(line.text)
        if directive and (directive[1] == "line" or directive[1][0].isdecimal()):
            return line.number, "`#line` would hide the place of the code; leave it out"
    return None


def text_at(tokens: Sequence[Token], index: int) -> str:
    return tokens[index].text if 0 <= index < len(tokens) else ""


def opening(tokens: Sequence[Token], index: int) -> int:
    """The innermost bracket that is open at `index`; -1 where none is, or too far before."""
    depth = 0
    for at in range(index, max(index - FARTHEST, -1), -1):
        if tokens[at].text in (")", "]", "}"):
            depth += 1
        elif tokens[at].text in _OPENING:
            if depth == 0:
                return at
            depth -= 1
    return -1


def closing(tokens: Sequence[Token], start: int) -> int:
    """The index of the bracket that closes the one at `start`; -1 without one."""
    pairs = {"(": ")", "[": "]", "{": "}"}
    stack: list[str] = []
    for index in range(start, len(tokens)):
        text = tokens[index].text if tokens[index].kind == "punctuator" else ""
        if text in pairs:
            stack.append(pairs[text])
        elif stack and text == stack[-1]:
            stack.pop()
        elif text in (")", "]", "}"):
            return -1
        if not stack:
            return index if index > start else -1
    return -1


def listed(tokens: Sequence[Token], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The first token of each part of a list with commas, and the index behind the part."""
    index = start
    while index < stop:
        first = index
        while index < stop and text_at(tokens, index) != ",":
            index = closing(tokens, index) + 1 if text_at(tokens, index) in _OPENING else index + 1
        if index > first:
            yield first, index
        index += 1


def too_deep(tokens: Sequence[Token]) -> Token | None:
    """The first bracket inside more than DEEPEST others; None without one."""
    depth = 0
    for token in tokens:
        if token.kind == "punctuator":
            depth += (token.text in _OPENING) - (token.text in (")", "]", "}"))
            if depth > DEEPEST:
                return token
    return None
