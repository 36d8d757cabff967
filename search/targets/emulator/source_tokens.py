"""C++ tokens of a text, with the file and line of each; strings and comments hide nothing.

Sources: the phases of translation in the C++17 standard ([lex.phases], [lex.pptoken]), and the
line markers of `g++ -E` (GCC, The C Preprocessor, "Preprocessor Output").
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

_NAME = r"(?:[A-Za-z_$]|[^\x00-\x7f])(?:[\w$]|[^\x00-\x7f])*"
_PREPROCESSED = re.compile(
    r"""
    (?P<marker>^\#(?:line)?\ [0-9]+\ "(?:[^"\\\n]|\\.)*"[\ 0-9]*$)
  | (?P<pragma>^\#pragma\b[^\n]*$)
  | (?P<space>[ \t\v\f\r\n]+)
  | (?P<string>(?:u8|[uUL])?(?:
        R"(?P<delimiter>[^()\\\s"]{0,16})\((?s:.*?)\)(?P=delimiter)" | "(?:[^"\\\n]|\\.)*")
        (?:"""
    + _NAME
    + r""")?)
  | (?P<character>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+'(?:"""
    + _NAME
    + r""")?)
  | (?P<number>\.?[0-9](?:[eEpP][+-]|'\w|[\w.$]|[^\x00-\x7f])*)
  | (?P<name>"""
    + _NAME
    + r""")
  | (?P<punctuator><:(?!:(?![:>]))|:>|<%|%>|%:%:|%:|::|&&|->|.)
    """,
    re.MULTILINE | re.VERBOSE,
)
_DIGRAPHS = {"<:": "[", ":>": "]", "<%": "{", "%>": "}"}
_MARKER = re.compile(r'#(?:line)? ([0-9]+) ("(?:[^"\\\n]|\\.)*")')


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # marker | pragma | string | character | number | name | punctuator
    text: str  # a digraph is replaced by its usual spelling
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


_RAW = re.compile(
    r"""
    (?P<comment>//[^\n]*|/\*(?s:.*?)(?:\*/|\Z))
  | (?P<newline>\n)
  | (?P<space>[ \t\v\f\r]+)
  | (?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s"]{0,16})\((?s:.*?)\)(?P=delimiter)")
  | (?P<quoted>(?:u8|[uUL])?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
  | (?P<open>["'][^\n]*)
  | (?P<number>\.?[0-9](?:[eEpP][+-]|'\w|[\w.$]|[^\x00-\x7f])*)
  | (?P<name>"""
    + _NAME
    + r""")
  | (?P<hash>\#|%:)
  | (?P<other>.)
    """,
    re.VERBOSE,
)
_SPLICE = re.compile(r"\\[ \t\v\f\r]*\n")


def line_directive(text: str) -> tuple[int, str] | None:
    """The first line of an author's text that claims another file or line for itself, and why.

    `text` holds no line markers of ours. A text that cannot be read with certainty (an open quote
    before a comment, a raw string over a continued line) is such a line as well.
    """
    joined = _SPLICE.sub("", text)
    splices = [match.start() for match in _SPLICE.finditer(text)]
    at_line_start, is_directive = True, False
    for match in _RAW.finditer(joined):
        kind = match.lastgroup
        if kind == "newline":
            at_line_start, is_directive = True, False
            continue
        if kind in ("comment", "space", "delimiter"):
            continue
        why = ""
        if kind == "raw" and splices:
            why = "a raw string beside continued lines would hide where it ends"
        elif kind == "open" and re.search(r'/[*/]|R"', match[0]):
            why = "an open quote would hide where a comment begins; close it"
        elif is_directive and (match[0] == "line" or kind == "number"):
            why = "`#line` would hide the place of the code; leave it out"
        if why:
            return _line_of(match.start(), joined, splices), why
        is_directive = at_line_start and kind == "hash"
        at_line_start = False
    return None


def _line_of(position: int, joined: str, splices: list[int]) -> int:
    """The line in the text before its continued lines were joined; exact without them."""
    return joined.count("\n", 0, position) + 1 + sum(1 for splice in splices if splice < position)
