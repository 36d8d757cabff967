"""Judges a name of a candidate's text, and refuses names that device code cannot use."""

from __future__ import annotations

import re

from greenfast.search.targets.emulator.class_bodies import WIDEST_BYTES
from greenfast.search.targets.emulator.source_rewriting import Rewriting, opening, text_at
from greenfast.search.targets.emulator.source_rules import (
    CALLS,
    COORDINATES,
    EXPRESSION_WORDS,
    STAMPS,
    STANDARD_COPIES,
    refused_name,
)
from greenfast.search.targets.emulator.source_tokens import Token

_LITERAL_MACRO = re.compile(r"U?INT(?:8|16|32|64|MAX)_C\Z")


def judge_name(rewriting: Rewriting, index: int) -> None:
    tokens = rewriting.source.tokens
    token = tokens[index]
    refuse_stamp(rewriting, token)
    if token.text in CALLS:
        rewriting.replace(token, token, CALLS[token.text])
        return
    if (reason := refused_name(token.text)) is not None:
        raise rewriting.refuse(token, f"`{token.text}` is {reason}")
    if token.text in rewriting.host_macros:
        raise rewriting.refuse(
            token, f"`{token.text}` is a macro of the host, which device code does not have"
        )
    if token.text == "goto" and text_at(tokens, index + 1) == "*":
        raise rewriting.refuse(token, "a computed goto does not exist on a GPU; use a switch")
    if token.text in COORDINATES and _is_declared(tokens, index):
        raise rewriting.refuse(
            token, f"`{token.text}` is CUDA's; a variable of the text needs another name"
        )
    if _LITERAL_MACRO.match(token.text) and not (
        text_at(tokens, index + 1) == "(" and tokens[index + 2].kind == "number"
    ):
        raise rewriting.refuse(token, f"`{token.text}` is a macro for a number's type")
    if token.text == "namespace" and text_at(tokens, index + 1) == "std":
        raise rewriting.refuse(
            token, "namespace std is not open to the text; use a namespace of its own"
        )
    if token.text == "template" and (name := _specialised(tokens, index)) is not None:
        raise rewriting.refuse(
            token, f"`std::{name}` is not the text's to specialise; use a class of its own"
        )
    if token.text in STANDARD_COPIES and [text_at(tokens, index - k) for k in (1, 2)] == [
        "::",
        "std",
    ]:
        raise rewriting.refuse(token, f"`std::{token.text}` is not part of CUDA C++; use a loop")
    if token.text == "alignas" and rewriting.pack[-1] < WIDEST_BYTES:
        raise rewriting.refuse(token, "compilers read `alignas` in packed structures differently")
    if token.text == "long" and "double" in (
        text_at(tokens, index + 1),
        text_at(tokens, index - 1),
    ):
        raise rewriting.refuse(token, "`long double` does not exist on a GPU; use `double`")


def _is_declared(tokens: tuple[Token, ...], index: int) -> bool:
    """Whether the text may declare the name at `index`, instead of reading it.

    A GPU would read that variable, where the emulator reads the coordinate.
    """
    if text_at(tokens, index + 1) == ".":
        return False
    before = tokens[index - 1] if index else None
    if before is None or before.text in EXPRESSION_WORDS:
        return False
    if before.text == ",":
        opened = opening(tokens, index - 1)
        return not (
            opened >= 0
            and (
                tokens[opened].text == "("
                or text_at(tokens, opened - 1) in ("=", ",", "(", "{", "return")
            )
        )
    return before.kind == "name" or before.text in (")", "]", ">", "*", "&", "&&")


def refuse_stamp(rewriting: Rewriting, token: Token) -> None:
    for name, macro in STAMPS.items():
        if name in token.text:
            raise rewriting.refuse(token, f"`{macro}` has another value for NVRTC; leave it out")


def _specialised(tokens: tuple[Token, ...], index: int) -> str | None:
    """The class of namespace std, or of its alias, that the `template <>` at `index` is for."""
    if [text_at(tokens, index + k) for k in (1, 2)] != ["<", ">"]:
        return None
    standard = {"std"} | {
        text_at(tokens, at + 1)
        for at in range(index)
        if tokens[at].text == "namespace"
        and "std" in (text_at(tokens, at + 3), text_at(tokens, at + 4))
        and text_at(tokens, at + 2) == "="
    }
    at, depth = index + 3, 0  # of template arguments
    while at + 2 < len(tokens) and tokens[at].text not in ("{", ";", "(", "="):
        name = tokens[at + 2].text
        is_class = tokens[at - 1].text in ("struct", "class", "union", "::")
        if depth == 0 and tokens[at].text in standard and (is_class or name.endswith("_v")):
            return name
        depth += {"<": 1, ">": -1}.get(tokens[at].text, 0)
        at += 1
    return None
