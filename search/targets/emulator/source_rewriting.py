"""The edits of a candidate's text, and the refusal of a place in it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from greenfast.search.targets.emulator.class_bodies import WIDEST_BYTES
from greenfast.search.targets.emulator.source_tokens import (
    Place,
    PreprocessedText,
    Token,
    marker_of,
)


@dataclass(frozen=True)
class Refused:
    """A place of a candidate's text that is no CUDA C++."""

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
    tokens: tuple[Token, ...] = ()  # without line markers, which stand between any two
    edits: list[tuple[int, int, str]] = field(default_factory=list)
    has_assembly: bool = False
    pack: list[int] = field(default_factory=lambda: [WIDEST_BYTES])  # by `#pragma pack`
    class_ends: frozenset[int] = frozenset()  # indices of the braces that end classes
    class_places: list[tuple[int, int]] = field(
        default_factory=list
    )  # of their braces, in the text
    alignments: list[int | None] = field(default_factory=list)  # of `extern __shared__` arrays
    shared_objects: set[str] = field(default_factory=set)  # such arrays outside of functions
    standard: set[str] = field(default_factory=lambda: {"std"})  # names of namespace std

    def replace(self, first: Token, last: Token, text: str) -> None:
        """Newlines and the last line marker are kept, so that lines keep their numbers.

        Spaces keep the tokens on both sides apart: `a[[likely]]sm` is no `asm`.
        """
        marker, counted_from = self.source.marker_within(first.start, last.end), first.start
        if marker is not None:
            number, name = marker_of(marker.text)
            text, counted_from = f"{text}\n#line {number} {name}", marker.end
        lines = self.source.text.count("\n", counted_from, last.end)
        self.edits.append((first.start, last.end, f" {text} " + "\n" * lines))

    def left_out_since(self, edits: int) -> bool:
        """Whether the last of the edits behind the first `edits` leaves tokens out."""
        return len(self.edits) > edits and self.edits[-1][2].isspace()

    def refuse(self, token: Token, reason: str) -> Refusal:
        return Refusal(Refused(self.source.place(token.start), reason))


class Refusal(Exception):
    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.sentence)
        self.refused = refused
