"""The bodies of classes and enumerations in a text, and whether their members are packed.

NVRTC ignores attributes that stand behind a body, where a host's compiler does not. Both put a
vector of a packed structure at any address, and a GPU then loads it as one vector all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from greenfast.search.targets.emulator.source_tokens import Token

_KEYS = ("struct", "class", "union", "enum")
_GROUPS = ("__attribute__", "__attribute", "alignas", "decltype")
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_PACK = re.compile(r"#pragma\s+pack\s*\(\s*(?:(push|pop)?|(?:(push)\s*,\s*)?(1|2|4|8|16))\s*\)\s*")
WIDEST_BYTES = 16
VECTOR = re.compile(r"(?:u?(?:char|short|int|long|longlong)|float|double)[24]\Z")


@dataclass(frozen=True)
class Body:
    """The indices of a body's braces."""

    first: int
    last: int
    is_packed: bool


def class_bodies(tokens: Sequence[Token]) -> list[Body]:
    bodies: list[Body] = []
    open_braces: list[tuple[int, bool, bool]] = []  # index, of a class, packed
    pack = [WIDEST_BYTES]
    for index, token in enumerate(tokens):
        if token.kind == "pragma":
            follow_pack(token.text, pack)
        elif token.text == "{" and token.kind == "punctuator":
            head = _head(tokens, index)
            packed = pack[-1] == 1 or "packed" in (part.strip("_") for part in head)
            open_braces.append((index, bool(head), packed))
        elif token.text == "}" and token.kind == "punctuator" and open_braces:
            first, is_class, packed = open_braces.pop()
            if is_class:
                bodies.append(Body(first, index, packed))
    return bodies


def packed_vectors(tokens: Sequence[Token], bodies: Sequence[Body]) -> Iterator[int]:
    """The indices of the types of packed vector members."""
    for body in bodies:
        depth = 0
        for index in range(body.first + 1, body.last if body.is_packed else 0):
            text = tokens[index].text
            depth += (text in _PAIRS) - (text in _PAIRS.values())
            if depth == 0 and VECTOR.match(text) and _declares(tokens, index):
                yield index


def empty_bit_fields(tokens: Sequence[Token], bodies: Sequence[Body]) -> Iterator[int]:
    """The indices of `: 0` in packed structures."""
    for body in bodies:
        for index in range(body.first + 1, body.last if body.is_packed else 0):
            if [token.text for token in tokens[index : index + 3]] == [":", "0", ";"]:
                yield index


def _declares(tokens: Sequence[Token], index: int) -> bool:
    before = tokens[index - 1]
    begins = before.kind in ("marker", "pragma") or before.text in ("{", ";", "}", ":", "const")
    return begins and tokens[index + 1].kind == "name" and tokens[index + 2].text in tuple(";,[={")


def _head(tokens: Sequence[Token], brace: int) -> list[str]:
    """The words before a class's or enumeration's brace; empty before any other."""
    at = brace - 1
    while at >= 0 and tokens[at].text not in (";", "{", "}") and tokens[at].kind != "pragma":
        at -= 1
    words = [token.text for token in tokens[at + 1 : brace] if token.kind != "marker"]
    key = max((number for number, word in enumerate(words) if word in _KEYS), default=-1)
    if key < 0:
        return []
    outside = list(_outside_groups(words[key + 1 :]))
    return [] if {"(", "=", "return"} & set(outside) else words[key:]


def _outside_groups(words: Sequence[str]) -> Iterator[str]:
    """Without the parentheses of attributes and alignments."""
    index = 0
    while index < len(words):
        if words[index] in _GROUPS and words[index + 1 : index + 2] == ["("]:
            depth, index = 0, index + 1
            while index < len(words):
                depth += (words[index] == "(") - (words[index] == ")")
                index += 1
                if depth == 0:
                    break
            continue
        yield words[index]
        index += 1


def follow_pack(pragma: str, pack: list[int]) -> bool:
    """Apply a pragma to the stack of alignments in bytes, which begins with WIDEST_BYTES.

    False: compilers do not agree on its form, such as a macro in place of the number.
    """
    match = _PACK.fullmatch(pragma)
    if match is None:
        return False
    if "push" in (match[1], match[2]):
        pack.append(pack[-1])
    if match[1] == "pop" and len(pack) > 1:
        pack.pop()
    if match[3] or not match[1]:
        pack[-1] = int(match[3] or WIDEST_BYTES)
    return True
