"""Reads a candidate's preprocessed text, refuses what is no CUDA C++, and writes the rest again.

The result has no directive but `#line`, the stand-in headers' `#include` and pragmas that lay out
memory. A host compiler therefore sees the same tokens as NVRTC, whichever macros it knows itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

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
from greenfast.search.targets.emulator.source_rules import (
    CALLS,
    COORDINATES,
    DEVICE_WORDS,
    DROPPED_ATTRIBUTES,
    DROPPED_GCC_PRAGMAS,
    DROPPED_PRAGMAS,
    DROPPED_STANDARD_ATTRIBUTES,
    KEPT_ATTRIBUTES,
    LAYOUT_ATTRIBUTES,
    PRIMITIVES,
    STAMPS,
    STANDARD_COPIES,
    refused_name,
)
from greenfast.search.targets.emulator.source_scopes import (
    alias_of,
    is_declared,
    is_namespace,
    opens_standard,
    parts,
    specialised,
)
from greenfast.search.targets.emulator.source_tokens import (
    DEEPEST,
    Place,
    PreprocessedText,
    Token,
    closing,
    listed,
    marker_edit,
    marker_of,
    text_at,
    too_deep,
)

HEADER_PRAGMA = "gf_emulator_header"  # in the place of a stand-in header's #include
HEADER_LINE = re.compile(rf'#pragma {HEADER_PRAGMA} "([\w./-]+)"\s*$')
_PRAGMA = re.compile(r"#pragma\s+(\w*)\s*(\w*)")
_ATTRIBUTE_WORDS = ("__attribute__", "__attribute")
# Behind all escapes that compilers agree on: \e, and characters by their code points.
_OTHER_ESCAPE = re.compile(r"""(?<!\\)(?:\\\\)*\\([^'"?\\abfnrtvx0-7])""")
# g++ reads a name behind a literal as a suffix, and as a macro where one has the name.
_SUFFIX = re.compile(r"[^'\"]+\Z")
_OWN_SUFFIX = re.compile(r"_[^_]")
_LITERAL_MACRO = re.compile(r"U?INT(?:8|16|32|64|MAX)_C\Z")
# No header of ours has these words behind the prelude. The compiler itself refuses them then, even
# where the reader of the tokens has overlooked one.
_POISON = (
    "#pragma GCC poison asm __asm __asm__ no_sanitize __no_sanitize__ no_sanitize_thread "
    "__no_sanitize_thread__ no_sanitize_undefined __no_sanitize_undefined__\n"
)
_HASHES = ("#", "##", "%:", "\\")


@dataclass(frozen=True)
class Refused:
    """A place of a candidate's text that is no CUDA C++."""

    place: Place
    reason: str

    @property
    def sentence(self) -> str:
        return f"{self.place}: {self.reason}"


@dataclass
class _Rewriting:
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

    def refuse(self, token: Token, reason: str) -> _Refusal:
        return _Refusal(Refused(self.source.place(token.start), reason))


class _Refusal(Exception):
    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.sentence)
        self.refused = refused


def device_text(
    preprocessed: str, headers: Collection[str], host_macros: Collection[str]
) -> str | Refused:
    """The text for the emulator's compiler.

    `headers` are the stand-in headers that it may include. `host_macros` are macros of the host's
    compiler and C library, which no text for a GPU can mean.
    """
    rewriting = _Rewriting(PreprocessedText(preprocessed), headers, host_macros)
    markers = [token for token in rewriting.source.tokens if token.kind == "marker"]
    rewriting.tokens = tuple(token for token in rewriting.source.tokens if token.kind != "marker")
    try:
        _read(rewriting)
    except _Refusal as refusal:
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


def _read(rewriting: _Rewriting) -> None:
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


def _judged(rewriting: _Rewriting, index: int, scopes: list[bool], vectors: Collection[int]) -> int:
    """Judge what begins at a token; the index behind it."""
    tokens = rewriting.tokens
    token = tokens[index]
    if token.kind == "name":
        return _word(rewriting, index, is_in_function=not all(scopes), vectors=vectors)
    if token.kind == "pragma":
        _pragma(rewriting, token)
    elif token.kind in ("string", "character"):
        _literal(rewriting, token)
    elif token.kind == "open":
        raise rewriting.refuse(token, "a quote has no end")
    elif token.kind == "punctuator":
        if token.text == "{":
            scopes.append(is_namespace(tokens, index))
        elif token.text == "}" and scopes:
            scopes.pop()
        if token.text == "[" and text_at(tokens, index + 1) == "[":
            return _standard_attribute(rewriting, index)
        if token.text in _HASHES:
            raise rewriting.refuse(token, f"a lone `{token.text}` is not C++")
    return index + 1


def _word(
    rewriting: _Rewriting, index: int, *, is_in_function: bool, vectors: Collection[int]
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
    if token.text in _ATTRIBUTE_WORDS:
        return _gnu_attribute(rewriting, index)
    if token.text == "_Pragma":
        return _pragma_operator(rewriting, index)
    if token.text in ASM_WORDS:
        return _assembly(rewriting, index)
    if index in vectors:
        rewriting.replace(token, token, f"gf_emulator::Packed<{token.text}>")
    elif token.text in rewriting.shared_objects and is_cast(tokens, index):
        rewriting.replace(token, token, f"+{token.text}")
    else:
        _name(rewriting, index)
    return index + 1


def _name(rewriting: _Rewriting, index: int) -> None:
    tokens = rewriting.tokens
    token = tokens[index]
    _no_stamp(rewriting, token)
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


def _no_stamp(rewriting: _Rewriting, token: Token) -> None:
    for name, macro in STAMPS.items():
        if name in token.text:
            raise rewriting.refuse(token, f"`{macro}` has another value for NVRTC; leave it out")


def _literal(rewriting: _Rewriting, token: Token) -> None:
    _no_stamp(rewriting, token)
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


def _assembly(rewriting: _Rewriting, start: int) -> int:
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
            tokens[start], f"inline PTX that the emulator does not have: {why}; {PRIMITIVES}"
        ) from None
    for expression in assembly.expressions:
        _plain_words(rewriting, expression, "an operand of `asm`")
    rewriting.has_assembly = True
    rewriting.replace(tokens[start], tokens[assembly.last], text)
    return assembly.last + 1


def _pragma(rewriting: _Rewriting, token: Token) -> None:
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


def _pragma_operator(rewriting: _Rewriting, start: int) -> int:
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


def _drop_pragma(rewriting: _Rewriting, first: Token, last: Token, pragma: str) -> None:
    words = _words(pragma)
    if words[0] not in DROPPED_PRAGMAS and not (
        words[0] == "GCC" and words[1] in DROPPED_GCC_PRAGMAS
    ):
        shown = " ".join(word for word in words if word)
        raise rewriting.refuse(
            first, f"`#pragma {shown}` is not a pragma of CUDA C++; leave it out"
        )
    rewriting.replace(first, last, "")


def _gnu_attribute(rewriting: _Rewriting, start: int) -> int:
    """Judge `__attribute__((...))` at the token `start`; the index behind it."""
    tokens = rewriting.tokens
    end = closing(tokens, start + 1)
    inner = closing(tokens, start + 2) if text_at(tokens, start + 2) == "(" else -1
    if end < 0 or inner != end - 1:
        raise rewriting.refuse(
            tokens[start], "the attribute has no end or no list in double brackets"
        )
    kept, words = False, []
    for first, _ in listed(tokens, start + 3, inner):
        name = tokens[first].text.strip("_")
        if name in LAYOUT_ATTRIBUTES and start - 1 in rewriting.class_ends:
            raise rewriting.refuse(
                tokens[first],
                f"NVRTC ignores the attribute `{name}` behind a class; "
                f"write it before the name: struct __attribute__(({name})) ...",
            )
        if name in DEVICE_WORDS:
            words.append(DEVICE_WORDS[name])
        elif name in KEPT_ATTRIBUTES:
            kept = True
        elif name not in DROPPED_ATTRIBUTES:
            raise rewriting.refuse(tokens[first], _attribute_reason(tokens[first].text))
    if kept:
        _plain_words(rewriting, range(start + 3, inner), "an attribute")
    if words and kept:
        raise rewriting.refuse(tokens[start], "CUDA's attributes stand in a list of their own")
    if not kept:
        rewriting.replace(tokens[start], tokens[end], " ".join(words))
    return end + 1


def _standard_attribute(rewriting: _Rewriting, start: int) -> int:
    """Judge `[[...]]` at the token `start`; the index behind it."""
    tokens = rewriting.tokens
    end = closing(tokens, start)
    if end < 0:
        raise rewriting.refuse(
            tokens[start], "the attribute has no end or no list in double brackets"
        )
    first_inside, namespace = start + 2, ""
    if text_at(tokens, first_inside) == "using":
        namespace, first_inside = text_at(tokens, first_inside + 1), first_inside + 3
    kept = False
    for first, _ in listed(tokens, first_inside, end - 1):
        name_at, space = first, namespace
        if text_at(tokens, first + 1) == "::":
            name_at, space = first + 2, tokens[first].text
        name = text_at(tokens, name_at).strip("_")
        gnu = space.strip("_") in ("gnu", "nv", "clang")
        keeps = KEPT_ATTRIBUTES if gnu else frozenset[str]()
        drops = DROPPED_ATTRIBUTES if gnu else DROPPED_STANDARD_ATTRIBUTES
        if (space and not gnu) or name not in keeps | drops:
            shown = f"{space}::{name}" if space else name
            raise rewriting.refuse(tokens[name_at], _attribute_reason(shown))
        if gnu and name in LAYOUT_ATTRIBUTES:
            raise rewriting.refuse(
                tokens[name_at],
                f"NVRTC does not know the attribute `{space}::{name}`; "
                f"write __attribute__(({name}))",
            )
        kept = kept or name in keeps
    if kept:
        _plain_words(rewriting, range(first_inside, end - 1), "an attribute")
    else:
        rewriting.replace(tokens[start], tokens[end], "")
    return end + 1


def _plain_words(rewriting: _Rewriting, indices: Iterable[int], place: str) -> None:
    """Judge tokens that stay as they are: refused is what would have to be written anew."""
    tokens = rewriting.tokens
    for index in indices:
        token = tokens[index]
        is_attribute = token.text in _ATTRIBUTE_WORDS or (
            token.text == "[" and text_at(tokens, index + 1) == "["
        )
        if is_attribute or token.kind == "pragma" or token.text in ("_Pragma", *CALLS):
            shown = CALLS.get(token.text) or ("[[" if token.text == "[" else token.text)
            raise rewriting.refuse(token, f"{place} holds `{shown}`; write it elsewhere")
        if token.kind == "name":
            _name(rewriting, index)
        elif token.kind in ("string", "character"):
            _literal(rewriting, token)
        elif token.kind == "open":
            raise rewriting.refuse(token, "a quote has no end")
        elif token.kind == "punctuator" and token.text in _HASHES:
            raise rewriting.refuse(token, f"a lone `{token.text}` is not C++")


def _shared_words(rewriting: _Rewriting, indices: range) -> None:
    """Judge an `extern __shared__` array, which is written anew without attributes."""
    tokens = rewriting.tokens
    index = indices.start
    while index < indices.stop:
        if tokens[index].text in _ATTRIBUTE_WORDS:
            index = max(closing(tokens, index + 1), index) + 1
            continue
        _plain_words(rewriting, (index,), "dynamic shared memory")
        index += 1


def _attribute_reason(name: str) -> str:
    return f"the attribute `{name}` is none that CUDA C++ needs; leave it out"
