"""The edits of a candidate's text, the refusal of a place in it, and walks over its tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from greenfast.search.targets.emulator.class_bodies import WIDEST_BYTES
from greenfast.search.targets.emulator.source_tokens import (
    Place,
    PreprocessedText,
    Token,
    marker_of,
)

_OPENING = ("(", "[", "{")


@dataclass(frozen=True)
class Refused:
    """A place of a candidate's text that is not CUDA C++."""

    place: Place
    reason: str

    @property
    def sentence(self) -> str:
        return f"{self.place}: {self.reason}"


@dataclass
class Rewriting:
    """The edits of one text, in its order."""

    source: PreprocessedText
    headers: Collection[str]
    host_macros: Collection[str]
    edits: list[tuple[int, int, str]] = field(default_factory=list)
    has_assembly: bool = False
    pack: list[int] = field(default_factory=lambda: [WIDEST_BYTES])  # by `#pragma pack`
    class_ends: frozenset[int] = frozenset()  # indices of the braces that end classes
    # Of the braces of each class: where they begin in the text.
    class_places: list[tuple[int, int]] = field(default_factory=list)
    alignments: list[int | None] = field(default_factory=list)  # of `extern __shared__` arrays

    def replace(self, first: Token, last: Token, text: str) -> None:
        """Replace tokens; newlines and the last line marker stay, so lines keep their numbers."""
        marker, counted_from = self.source.marker_within(first.start, last.end), first.start
        if marker is not None:
            number, name = marker_of(marker.text)
            text, counted_from = f"{text}\n#line {number} {name}", marker.end
        lines = self.source.text.count("\n", counted_from, last.end)
        self.edits.append((first.start, last.end, text + "\n" * lines))

    def refuse(self, token: Token, reason: str) -> Refusal:
        return Refusal(Refused(self.source.place(token.start), reason))


class Refusal(Exception):
    """Ends the reading of a text."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.sentence)
        self.refused = refused


def text_at(tokens: tuple[Token, ...], index: int) -> str:
    """The text of a token; "" before the first and after the last one."""
    return tokens[index].text if 0 <= index < len(tokens) else ""


def closing(tokens: tuple[Token, ...], start: int) -> int:
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


def listed(tokens: tuple[Token, ...], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """For each part of a list with commas, the index of its first token and the index after it."""
    index = start
    while index < stop:
        first = index
        while index < stop and text_at(tokens, index) != ",":
            index = closing(tokens, index) + 1 if text_at(tokens, index) in _OPENING else index + 1
        if index > first:
            yield first, index
        index += 1


def opening(tokens: tuple[Token, ...], index: int) -> int:
    """The index of the innermost bracket that is open at `index`; -1 if none is."""
    depth = 0
    for at in range(index, -1, -1):
        if tokens[at].text in (")", "]", "}"):
            depth += 1
        elif tokens[at].text in _OPENING:
            if depth == 0:
                return at
            depth -= 1
    return -1
