"""Reads a candidate's preprocessed text, refuses what is not CUDA C++, and writes the rest again.

The result has no directives but `#line`, the stand-in headers' `#include` and pragmas that lay out
memory. A host compiler therefore sees the same tokens as NVRTC, whichever macros it knows itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from greenfast.search.targets.emulator.bit_fields import differing_uses
from greenfast.search.targets.emulator.class_bodies import (
    WIDEST_BYTES,
    class_bodies,
    empty_bit_fields,
    follow_pack,
    packed_vectors,
)
from greenfast.search.targets.emulator.dynamic_shared import (
    alignment_text,
    dynamic_shared,
    is_cast,
)
from greenfast.search.targets.emulator.inline_assembly import ASM_WORDS, assembly_at
from greenfast.search.targets.emulator.ptx_statement import HEADERS as PTX_HEADERS
from greenfast.search.targets.emulator.ptx_statement import translated
from greenfast.search.targets.emulator.ptx_text import NotPtx
from greenfast.search.targets.emulator.ptx_values import Unsupported
from greenfast.search.targets.emulator.source_attributes import gnu_attribute, standard_attribute
from greenfast.search.targets.emulator.source_names import (
    ATTRIBUTE_WORDS,
    HASHES,
    judge_literal,
    judge_name,
    judge_plain,
)
from greenfast.search.targets.emulator.source_rewriting import Refusal, Refused, Rewriting
from greenfast.search.targets.emulator.source_rules import (
    DROPPED_GCC_PRAGMAS,
    DROPPED_PRAGMAS,
    PRIMITIVES,
)
from greenfast.search.targets.emulator.source_scopes import is_namespace, parts
from greenfast.search.targets.emulator.source_tokens import (
    DEEPEST,
    PreprocessedText,
    Token,
    closing,
    marker_edit,
    text_at,
    too_deep,
)

HEADER_PRAGMA = "gf_emulator_header"  # in the place of a stand-in header's #include
HEADER_LINE = re.compile(rf'#pragma {HEADER_PRAGMA} "([\w./-]+)"\s*$')
PROGRAMS = "gf_emulator/programs.h"  # in the place of <cmath>, which NVRTC does not have
_HEADER_LINES = re.compile(rf"^{HEADER_LINE.pattern}", re.MULTILINE)
_PRAGMA = re.compile(r"#pragma\s+(\w*)\s*(\w*)")
# No header of ours has these words behind the prelude. The compiler itself refuses them then, even
# where the reader of the tokens has overlooked one.
_POISON = (
    "#pragma GCC poison asm __asm __asm__ no_sanitize __no_sanitize__ no_sanitize_thread "
    "__no_sanitize_thread__ no_sanitize_undefined __no_sanitize_undefined__\n"
)


def included_headers(preprocessed: str) -> tuple[str, ...]:
    """The stand-in headers that a preprocessed text includes."""
    return tuple(dict.fromkeys(match[1] for match in _HEADER_LINES.finditer(preprocessed)))


def device_text(
    preprocessed: str, headers: Collection[str], host_macros: Collection[str]
) -> str | Refused:
    """The text for the emulator's compiler.

    `headers` are the stand-in headers that it may include. `host_macros` are macros of the host's
    compiler and C library, which no text for a GPU can mean.
    """
    rewriting = Rewriting(PreprocessedText(preprocessed), headers, host_macros)
    markers = [token for token in rewriting.source.tokens if token.kind == "marker"]
    rewriting.tokens = tuple(token for token in rewriting.source.tokens if token.kind != "marker")
    try:
        _read(rewriting)
    except Refusal as refusal:
        return refusal.refused
    pieces, position = [], 0
    for start, end, text in sorted((*rewriting.edits, *map(marker_edit, markers))):
        if start >= position:  # else the marker of a part that was written anew
            pieces += [preprocessed[position:start], text]
            position = end
    includes = (f'#include "{name}"\n' for name in PTX_HEADERS if rewriting.has_assembly)
    begin = f'{_POISON}#line 1 "kernel.cu"\n'
    behind = alignment_text(rewriting.alignments)
    return "".join((*includes, begin, *pieces, preprocessed[position:], behind))


def _read(rewriting: Rewriting) -> None:
    tokens = rewriting.tokens
    if (bracket := too_deep(tokens)) is not None:
        raise rewriting.refuse(bracket, f"brackets are nested more than {DEEPEST} deep")
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
    for at in differing_uses(tokens, bodies):
        raise rewriting.refuse(
            tokens[at],
            f"compilers give the bit-field `{tokens[at].text}` another type here; write a cast",
        )
    vectors = frozenset(packed_vectors(tokens, bodies))
    index, before, has_gap = 0, "", False  # `before`: the last token that is not left out
    while index < len(tokens):
        token, edits = tokens[index], len(rewriting.edits)
        index = _judged(rewriting, index, scopes, vectors)
        if token.kind == "pragma" or rewriting.left_out_since(edits):
            has_gap = True
            continue
        if has_gap and parts(before, token.text):
            raise rewriting.refuse(token, f"nothing may stand between `{before}` and this")
        before, has_gap = tokens[index - 1].text, False


def _judged(rewriting: Rewriting, index: int, scopes: list[bool], vectors: Collection[int]) -> int:
    """Judge what begins at a token; the index behind it."""
    tokens = rewriting.tokens
    token = tokens[index]
    if token.kind == "name":
        return _word(rewriting, index, is_in_function=not all(scopes), vectors=vectors)
    if token.kind == "pragma":
        _pragma(rewriting, token)
    elif token.kind in ("string", "character"):
        judge_literal(rewriting, token)
    elif token.kind == "open":
        raise rewriting.refuse(token, "a quote has no end")
    elif token.kind == "punctuator":
        if token.text == "{":
            scopes.append(is_namespace(tokens, index))
        elif token.text == "}" and scopes:
            scopes.pop()
        if token.text == "[" and text_at(tokens, index + 1) == "[":
            return standard_attribute(rewriting, index)
        if token.text in HASHES:
            raise rewriting.refuse(token, f"a lone `{token.text}` is not C++")
    return index + 1


def _word(
    rewriting: Rewriting, index: int, *, is_in_function: bool, vectors: Collection[int]
) -> int:
    """Judge what begins at a name; the index behind it."""
    tokens = rewriting.tokens
    token = tokens[index]
    if token.text == "extern" and (shared := dynamic_shared(tokens, index, is_in_function)):
        _shared_words(rewriting, range(index + 1, shared.last))
        rewriting.replace(tokens[shared.first], tokens[shared.last], shared.text)
        rewriting.alignments.append(shared.alignment)
        rewriting.shared_objects.add(shared.object_name)
        return shared.last + 1
    if token.text in ATTRIBUTE_WORDS:
        return gnu_attribute(rewriting, index)
    if token.text == "_Pragma":
        return _pragma_operator(rewriting, index)
    if token.text in ASM_WORDS:
        return _assembly(rewriting, index)
    if index in vectors:
        rewriting.replace(token, token, f"gf_emulator::Packed<{token.text}>")
    elif token.text in rewriting.shared_objects and is_cast(tokens, index):
        rewriting.replace(token, token, f"+{token.text}")
    else:
        judge_name(rewriting, index)
    return index + 1


def _assembly(rewriting: Rewriting, start: int) -> int:
    """Translate the `asm` statement at the token `start`; the index behind it."""
    tokens = rewriting.tokens
    try:
        assembly = assembly_at(tokens, start)
        text = translated(assembly.statement, start)
    except NotPtx as why:
        raise rewriting.refuse(
            tokens[start], f"inline assembly that is not PTX: {why}; {PRIMITIVES}"
        ) from None
    except Unsupported as why:
        raise rewriting.refuse(
            tokens[start],
            f"inline PTX that the emulator does not have: {why}; `greenfast docs emulator` lists "
            "the instructions that it has, and the primitives of gf/",
        ) from None
    for expression in assembly.expressions:
        judge_plain(rewriting, expression, "an operand of `asm`")
    rewriting.has_assembly = True
    rewriting.replace(tokens[start], tokens[assembly.last], text)
    return assembly.last + 1


def _pragma(rewriting: Rewriting, token: Token) -> None:
    if match := HEADER_LINE.match(token.text):
        if match[1] not in (*rewriting.headers, PROGRAMS):
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
    tokens = rewriting.tokens
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


def _shared_words(rewriting: Rewriting, indices: range) -> None:
    """Judge an `extern __shared__` array, which is written anew without attributes."""
    tokens = rewriting.tokens
    index = indices.start
    while index < indices.stop:
        if tokens[index].text in ATTRIBUTE_WORDS:
            index = max(closing(tokens, index + 1), index) + 1
            continue
        judge_plain(rewriting, (index,), "dynamic shared memory")
        index += 1
