"""Reads a candidate's preprocessed text, refuses what is not CUDA C++, and writes the rest again.

The result has no directives but `#line`, the stand-in headers' `#include` and pragmas that lay out
memory. A host compiler therefore sees the same tokens as NVRTC, whichever macros it knows itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from greenfast.search.targets.emulator.class_bodies import (
    WIDEST_BYTES,
    class_bodies,
    empty_bit_fields,
    follow_pack,
    packed_vectors,
)
from greenfast.search.targets.emulator.dynamic_shared import alignment_text, dynamic_shared
from greenfast.search.targets.emulator.inline_assembly import ASM_WORDS, assembly_at
from greenfast.search.targets.emulator.ptx_statement import HEADERS as PTX_HEADERS
from greenfast.search.targets.emulator.ptx_statement import translated
from greenfast.search.targets.emulator.ptx_text import NotPtx
from greenfast.search.targets.emulator.ptx_values import Unsupported
from greenfast.search.targets.emulator.source_attributes import gnu_attribute, standard_attribute
from greenfast.search.targets.emulator.source_names import judge_name, refuse_stamp
from greenfast.search.targets.emulator.source_rewriting import (
    Refusal,
    Refused,
    Rewriting,
    text_at,
)
from greenfast.search.targets.emulator.source_rules import (
    CALLS,
    DROPPED_GCC_PRAGMAS,
    DROPPED_PRAGMAS,
    PRIMITIVES,
)
from greenfast.search.targets.emulator.source_tokens import PreprocessedText, Token, marker_of

HEADER_PRAGMA = "gf_emulator_header"  # in the place of a stand-in header's #include
HEADER_LINE = re.compile(rf'#pragma {HEADER_PRAGMA} "([\w./-]+)"\s*$')
_PRAGMA = re.compile(r"#pragma\s+(\w*)\s*(\w*)")
_ATTRIBUTE_WORDS = ("__attribute__", "__attribute")
# Behind all escapes that compilers agree on: \e, and characters by their code points.
_OTHER_ESCAPE = re.compile(r"""(?<!\\)(?:\\\\)*\\([^'"?\\abfnrtvx0-7])""")
_HASHES = ("#", "##", "%:", "\\")


def device_text(
    preprocessed: str, headers: Collection[str], host_macros: Collection[str]
) -> str | Refused:
    """The text for the emulator's compiler.

    `headers` are the stand-in headers that it may include. `host_macros` are macros of the host's
    compiler and C library, which no text for a GPU can mean.
    """
    rewriting = Rewriting(PreprocessedText(preprocessed), headers, host_macros)
    try:
        _read(rewriting)
    except Refusal as refusal:
        return refusal.refused
    pieces, position = [], 0
    for start, end, text in rewriting.edits:
        pieces += [preprocessed[position:start], text]
        position = end
    includes = (f'#include "{name}"\n' for name in PTX_HEADERS if rewriting.has_assembly)
    begin = '#line 1 "kernel.cu"\n' if rewriting.has_assembly else ""
    behind = alignment_text(rewriting.alignments)
    return "".join((*includes, begin, *pieces, preprocessed[position:], behind))


def _read(rewriting: Rewriting) -> None:
    tokens = rewriting.source.tokens
    scopes: list[bool] = []  # whether each open brace is a namespace's
    bodies = class_bodies(tokens)
    rewriting.class_ends = frozenset(body.last for body in bodies)
    rewriting.class_places = [
        (tokens[body.first].start, tokens[body.last].start) for body in bodies
    ]
    for at in empty_bit_fields(tokens, bodies):
        raise rewriting.refuse(
            tokens[at], "compilers lay out `: 0` in a packed structure differently"
        )
    vectors = frozenset(packed_vectors(tokens, bodies))
    index = 0
    while index < len(tokens):
        token = tokens[index]
        index += 1
        if token.kind == "name":
            if token.text == "extern" and (
                shared := dynamic_shared(tokens, index - 1, not all(scopes))
            ):
                for at in range(index, shared.last):
                    if tokens[at].kind == "name" and tokens[at].text not in _ATTRIBUTE_WORDS:
                        judge_name(rewriting, at)
                rewriting.replace(tokens[shared.first], tokens[shared.last], shared.text)
                rewriting.alignments.append(shared.alignment)
                index = shared.last + 1
            elif token.text in _ATTRIBUTE_WORDS:
                index = gnu_attribute(rewriting, index - 1)
            elif token.text == "_Pragma":
                index = _pragma_operator(rewriting, index - 1)
            elif token.text in ASM_WORDS:
                index = _assembly(rewriting, index - 1)
            elif index - 1 in vectors:
                rewriting.replace(token, token, f"gf_emulator::Packed<{token.text}>")
            else:
                judge_name(rewriting, index - 1)
        elif token.kind == "marker":
            _marker(rewriting, token)
        elif token.kind == "pragma":
            _pragma(rewriting, token)
        elif token.kind in ("string", "character"):
            _literal(rewriting, token)
        elif token.kind == "punctuator":
            if token.text == "{":
                scopes.append(_is_namespace(tokens, index - 1))
            elif token.text == "}" and scopes:
                scopes.pop()
            if token.text == "[" and text_at(tokens, index) == "[":
                index = standard_attribute(rewriting, index - 1)
            elif token.text in _HASHES:
                raise rewriting.refuse(token, f"a lone `{token.text}` is not C++")


def _is_namespace(tokens: tuple[Token, ...], brace: int) -> bool:
    """Whether the brace opens a namespace or `extern "C"`."""
    at = brace - 1
    if at >= 0 and tokens[at].kind == "string":
        return text_at(tokens, at - 1) == "extern"
    while at >= 0 and (tokens[at].text == "::" or tokens[at].kind in ("name", "marker")):
        if tokens[at].text == "namespace":
            return True
        at -= 1
    return False


def _literal(rewriting: Rewriting, token: Token) -> None:
    refuse_stamp(rewriting, token)
    for name, macro in CALLS.items():
        if name in token.text:
            raise rewriting.refuse(token, f"NVRTC makes another string of `{macro}`")
    quote = '"' if token.kind == "string" else "'"
    prefix = token.text[: token.text.index(quote)]
    escape = None if prefix.endswith("R") else _OTHER_ESCAPE.search(token.text)
    if escape is not None:
        raise rewriting.refuse(token, f"NVRTC reads the escape `{escape[0]}` in another way")
    if not token.text.isascii() and (prefix not in ("", "R") or quote == "'"):
        raise rewriting.refuse(token, "NVRTC takes each byte of such a literal for a character")


def _assembly(rewriting: Rewriting, start: int) -> int:
    """Translate the `asm` statement at the token `start`; the index behind it."""
    tokens = rewriting.source.tokens
    try:
        assembly = assembly_at(tokens, start)
        text = translated(assembly.statement, start)
    except NotPtx as why:
        raise rewriting.refuse(
            tokens[start], f"inline assembly that is not PTX: {why}; {PRIMITIVES}"
        ) from None
    except Unsupported as why:
        raise rewriting.refuse(
            tokens[start], f"inline PTX that the emulator does not have: {why}; {PRIMITIVES}"
        ) from None
    for expression in assembly.expressions:
        for index in expression:
            if tokens[index].kind == "name":
                judge_name(rewriting, index)
            elif tokens[index].text in _HASHES:
                raise rewriting.refuse(tokens[index], f"a lone `{tokens[index].text}` is not C++")
    rewriting.has_assembly = True
    rewriting.replace(tokens[start], tokens[assembly.last], text)
    return assembly.last + 1


def _marker(rewriting: Rewriting, token: Token) -> None:
    number, name = marker_of(token.text)
    own = number > 0 and not name.startswith('"<')
    text = f"#line {number} {name}" if own else ""
    rewriting.edits.append((token.start, token.end, text))


def _pragma(rewriting: Rewriting, token: Token) -> None:
    if match := HEADER_LINE.match(token.text):
        if match[1] not in rewriting.headers:
            raise rewriting.refuse(token, f"there is no header {match[1]!r}")
        if rewriting.pack[-1] < WIDEST_BYTES:
            raise rewriting.refuse(
                token,
                f"`#pragma pack` changes the structures of {match[1]} on a GPU; include it before",
            )
        # One line for one line: the next marker or newline follows as before.
        rewriting.replace(token, token, f'#include "{match[1]}"')
        return
    if _words(token.text)[0] == "pack":
        if not follow_pack(token.text, rewriting.pack):
            raise rewriting.refuse(
                token,
                "compilers read this pragma in different ways; write pack(push, 1), pack(pop)",
            )
        if any(first < token.start < last for first, last in rewriting.class_places):
            raise rewriting.refuse(token, "compilers read this pragma in a class differently")
        return
    _drop_pragma(rewriting, token, token, token.text)


def _pragma_operator(rewriting: Rewriting, start: int) -> int:
    """Judge `_Pragma("...")` at the token `start`; the index behind it."""
    tokens = rewriting.source.tokens
    opening, text, closing = (text_at(tokens, start + at) for at in (1, 2, 3))
    if (opening, text[:1], closing) != ("(", '"', ")"):
        raise rewriting.refuse(tokens[start], "`_Pragma` needs one plain string in brackets")
    pragma = f"#pragma {text[1:-1].strip()}"
    _drop_pragma(rewriting, tokens[start], tokens[start + 3], pragma)
    return start + 4


def _words(pragma: str) -> tuple[str, str]:
    match = _PRAGMA.match(pragma)
    return (match[1], match[2]) if match else ("", "")


def _drop_pragma(rewriting: Rewriting, first: Token, last: Token, pragma: str) -> None:
    words = _words(pragma)
    if words[0] not in DROPPED_PRAGMAS and not (
        words[0] == "GCC" and words[1] in DROPPED_GCC_PRAGMAS
    ):
        shown = " ".join(word for word in words if word)
        raise rewriting.refuse(
            first, f"`#pragma {shown}` is not a pragma of CUDA C++; leave it out"
        )
    rewriting.replace(first, last, "")
