"""Names and literals of a candidate's text that no text for a GPU needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from greenfast.search.targets.emulator.class_bodies import WIDEST_BYTES
from greenfast.search.targets.emulator.source_rewriting import Rewriting
from greenfast.search.targets.emulator.source_rules import (
    CALLS,
    COORDINATES,
    STAMPS,
    STANDARD_COPIES,
    refused_name,
)
from greenfast.search.targets.emulator.source_scopes import (
    alias_of,
    is_declared,
    opens_standard,
    specialised,
)
from greenfast.search.targets.emulator.source_tokens import Token, closing, text_at

ATTRIBUTE_WORDS = ("__attribute__", "__attribute")
HASHES = ("#", "##", "%:", "\\")
# Behind all escapes that compilers agree on: \e, and characters by their code points.
_OTHER_ESCAPE = re.compile(r"""(?<!\\)(?:\\\\)*\\([^'"?\\abfnrtvx0-7])""")
# g++ reads a name behind a literal as a suffix, and as a macro where one has the name.
_SUFFIX = re.compile(r"[^'\"]+\Z")
_OWN_SUFFIX = re.compile(r"_[^_]")
_UNEVALUATED = ("sizeof", "alignof", "decltype", "noexcept")
_UNDERLYING = ("__underlying_type", "underlying_type", "underlying_type_t")
_LITERAL_MACRO = re.compile(r"U?INT(?:8|16|32|64|MAX)_C\Z")


def judge_name(rewriting: Rewriting, index: int) -> None:
    tokens = rewriting.tokens
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
    if token.text in COORDINATES and is_declared(tokens, index):
        raise rewriting.refuse(
            token, f"`{token.text}` is CUDA's; a variable of the text needs another name"
        )
    if _LITERAL_MACRO.match(token.text) and not (
        text_at(tokens, index + 1) == "(" and tokens[index + 2].kind == "number"
    ):
        raise rewriting.refuse(token, f"`{token.text}` is a macro for a number's type")
    if token.text == "noexcept" and _asks_about_a_call(tokens, index):
        raise rewriting.refuse(
            token, "compilers answer `noexcept` of a call differently; write noexcept(true) or none"
        )
    if token.text in _UNDERLYING and _leaves_a_type_open(tokens):
        raise rewriting.refuse(
            token, "compilers choose the type of an enum differently; write `enum Name : int`"
        )
    if token.text == "namespace":
        if opens_standard(tokens, index):
            raise rewriting.refuse(
                token, "namespace std is not open to the text; use a namespace of its own"
            )
        if (alias := alias_of(tokens, index, rewriting.standard)) is not None:
            rewriting.standard.add(alias)
    if (
        token.text == "template"
        and (name := specialised(tokens, index, rewriting.standard)) is not None
    ):
        raise rewriting.refuse(
            token, f"`std::{name}` is not the text's to specialise; use a class of its own"
        )
    if (
        token.text in STANDARD_COPIES
        and text_at(tokens, index - 1) == "::"
        and text_at(tokens, index - 2) in rewriting.standard
    ):
        raise rewriting.refuse(token, f"`std::{token.text}` is not part of CUDA C++; use a loop")
    if token.text == "alignas" and rewriting.pack[-1] < WIDEST_BYTES:
        raise rewriting.refuse(token, "compilers read `alignas` in packed structures differently")
    if token.text == "long" and "double" in (
        text_at(tokens, index + 1),
        text_at(tokens, index - 1),
    ):
        raise rewriting.refuse(token, "`long double` does not exist on a GPU; use `double`")


def _asks_about_a_call(tokens: Sequence[Token], index: int) -> bool:
    """Whether `noexcept(...)` at `index` holds a call: of expf, no for NVRTC and yes for g++."""
    inside = (
        range(index + 2, closing(tokens, index + 1)) if text_at(tokens, index + 1) == "(" else ()
    )
    return any(tokens[at].text == "(" and tokens[at - 1].text not in _UNEVALUATED for at in inside)


def _leaves_a_type_open(tokens: Sequence[Token]) -> bool:
    """Whether the text has an enum whose type the compiler chooses: int for NVRTC, unsigned for
    g++, which no promotion shows."""
    for index, token in enumerate(tokens):
        if token.text == "enum" and text_at(tokens, index + 1) not in ("class", "struct"):
            following = (each.text for each in tokens[index + 1 :])
            if next((text for text in following if text in ("{", ":", ";")), "") == "{":
                return True
    return False


def refuse_stamp(rewriting: Rewriting, token: Token) -> None:
    for name, macro in STAMPS.items():
        if name in token.text:
            raise rewriting.refuse(token, f"`{macro}` has another value for NVRTC; leave it out")


def judge_literal(rewriting: Rewriting, token: Token) -> None:
    refuse_stamp(rewriting, token)
    for name, macro in CALLS.items():
        if name in token.text:
            raise rewriting.refuse(token, f"NVRTC makes another string of `{macro}`")
    quote = '"' if token.kind == "string" else "'"
    prefix = token.text[: token.text.index(quote)]
    escape = None if prefix.endswith("R") else _OTHER_ESCAPE.search(token.text)
    if escape is not None:
        raise rewriting.refuse(token, f"NVRTC reads the escape `{escape[0]}` in another way")
    suffix = _SUFFIX.search(token.text)
    if suffix is not None and not _OWN_SUFFIX.match(suffix[0]):
        raise rewriting.refuse(token, f"`{suffix[0]}` behind a literal needs a space before it")
    if not token.text.isascii() and (prefix not in ("", "R") or quote == "'"):
        raise rewriting.refuse(token, "NVRTC takes each byte of such a literal for a character")


def judge_plain(rewriting: Rewriting, indices: Iterable[int], place: str) -> None:
    """Judge tokens that stay as they are: refused is what would have to be written anew."""
    tokens = rewriting.tokens
    for index in indices:
        token = tokens[index]
        is_attribute = token.text in ATTRIBUTE_WORDS or (
            token.text == "[" and text_at(tokens, index + 1) == "["
        )
        if is_attribute or token.kind == "pragma" or token.text in ("_Pragma", *CALLS):
            shown = CALLS.get(token.text) or ("[[" if token.text == "[" else token.text)
            raise rewriting.refuse(token, f"{place} holds `{shown}`; write it elsewhere")
        if token.kind == "name":
            judge_name(rewriting, index)
        elif token.kind in ("string", "character"):
            judge_literal(rewriting, token)
        elif token.kind == "open":
            raise rewriting.refuse(token, "a quote has no end")
        elif token.kind == "punctuator" and token.text in HASHES:
            raise rewriting.refuse(token, f"a lone `{token.text}` is not C++")
