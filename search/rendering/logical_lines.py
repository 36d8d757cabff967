"""A text's lines as a preprocessor reads them: continued lines are joined, and comments are blank.

A line is a directive exactly where compilers find one. A place that they could read differently is
a fault of its line, and ends the reading. Source: the C++17 standard, [lex.phases], [lex.pptoken]
and [lex.string].
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_CONTINUED = re.compile(r"\\[ \t\v\f\r]*\n")
_BEFORE = r"(?<![\w$\x80-\U0010ffff])"  # no part of a name or a number
_RAW = _BEFORE + r'(?:u8|[uUL])?R"'
# What can hide a comment's or a literal's begin or end: in 1'000 no character literal begins.
_PIECE = re.compile(
    rf"""
    (?P<raw>{_RAW}(?P<delimiter>[^()\\\s]{{0,16}})\((?s:.*?)\)(?P=delimiter)")
  | (?P<endless>{_RAW}[^\n]*)
  | (?P<number>(?:{_BEFORE}[0-9]|\.[0-9])(?:[eEpP][+-]|'\w|[\w.$])*)
  | (?P<literal>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<open>["'][^\n]*)
  | (?P<comment>//[^\n]*|/\*(?s:.*?)(?:\*/|\Z))
    """,
    re.VERBOSE,
)
_HIDING = re.compile(r'/[*/]|R"')
_ENDLESS = "a raw string has no end that every compiler finds"
_CONTINUED_RAW = "a raw string beside continued lines would hide where it ends"
_OPEN = "an open quote would hide where a comment begins; close it"


@dataclass(frozen=True, slots=True)
class LogicalLine:
    number: int  # of its first line in the text, from 1
    count: int  # of its lines in the text
    text: str
    fault: str = ""  # why compilers may read the text differently from here on


def logical_lines(text: str) -> Iterator[LogicalLine]:
    """The lines of a text; the last one is that of its first fault, if it has any."""
    joined, breaks = _joined(text)
    number, count, taken, position = 1, 1, 0, 0  # `taken`: how many of the breaks lie before
    pieces: list[str] = []
    matches = _PIECE.finditer(joined)
    while True:
        match = next(matches, None)
        until = len(joined) if match is None else match.start()
        while (end := joined.find("\n", position, until)) >= 0:
            pieces.append(joined[position:end])
            while taken < len(breaks) and breaks[taken] <= end:
                taken, count = taken + 1, count + 1
            yield LogicalLine(number, count, "".join(pieces))
            number, count, pieces, position = number + count, 1, [], end + 1
        pieces.append(joined[position:until])
        if match is None:
            yield LogicalLine(number, count + len(breaks) - taken, "".join(pieces))
            return
        if fault := _fault(match, breaks):
            before = sum(1 for each in breaks[taken:] if each < match.start())
            yield LogicalLine(number + count - 1 + before, 1, "", fault)
            return
        pieces.append(_shown(match))
        count += match[0].count("\n")
        position = match.end()


def ends_in_comment(text: str) -> bool:
    """Whether the text's last comment has no end in it."""
    comments = [match for match in _PIECE.finditer(_joined(text)[0]) if match["comment"]]
    last = comments[-1]["comment"] if comments else "//"
    return last.startswith("/*") and (len(last) < 4 or not last.endswith("*/"))


def _joined(text: str) -> tuple[str, list[int]]:
    """The text without its line breaks behind backslashes, and where they were."""
    pieces, breaks, length, position = [], [], 0, 0
    for match in _CONTINUED.finditer(text):
        pieces.append(text[position : match.start()])
        length += match.start() - position
        breaks.append(length)
        position = match.end()
    return "".join((*pieces, text[position:])), breaks


def _fault(match: re.Match[str], breaks: list[int]) -> str:
    kind = match.lastgroup
    if kind == "endless":
        return _ENDLESS
    # Within a raw string a backslash does not continue the line.
    if match["raw"] and any(match.start() < each < match.end() for each in breaks):
        return _CONTINUED_RAW
    return _OPEN if kind == "open" and _HIDING.search(match[0]) else ""


def _shown(match: re.Match[str]) -> str:
    if match["comment"]:
        return " "
    if match["raw"]:
        return match[0].replace("\n", " ") if "incbin" in match[0] else '""'
    return match[0]
